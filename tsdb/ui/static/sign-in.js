// Sign-in: sends the token once; the server answers with a cookie that scripts cannot read.
"use strict";
const form = document.getElementById("sign-in");
const answer = document.getElementById("answer");

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const token = document.getElementById("token").value.trim();
  answer.textContent = "";
  let got;
  try {
    got = await fetch("/ui/sign-in", { method: "POST", headers: { authorization: `Bearer ${token}` } });
  } catch {
    answer.textContent = "The server does not answer, or the token has characters that no token has. Try again.";
    return;
  }
  await got.text();
  if (got.ok) {
    location.reload();
    return;
  }
  answer.textContent = got.status === 401 ? "This token is not valid here." : `The server answered ${got.status}.`;
});
