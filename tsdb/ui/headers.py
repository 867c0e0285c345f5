"""Sets the headers of every answer of the pages: the type of HTML, the content security policy and its companions.

Scripts come from files of this server alone. No script is in the HTML, and nothing turns text into code, so a label or
a value cannot become a script. Styles may be inline, because BokehJS makes its own at run time.
"""

from __future__ import annotations

from tsdb.ops.http.bodies import Headers

HTML = "text/html; charset=utf-8"
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "font-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
SAFE: Headers = (
    ("content-security-policy", POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
)
UNSTORED: Headers = (*SAFE, ("cache-control", "no-store"))
