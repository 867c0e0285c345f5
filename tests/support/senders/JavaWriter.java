import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.time.Duration;

/**
 * Writes line protocol and sends queries as forms, for some seconds on some threads, with the client as it is by
 * default: each request offers HTTP/2. Prints the samples that were answered with 204, by thread, and ends with 1 at the
 * first other answer. Arguments: base URL, run, seconds, threads.
 */
public class JavaWriter {
  private static final int SMALL_LINES = 5;
  private static final int LARGE_LINES = 3_000; // More than one segment.
  private static final int LARGE_EVERY = 20;

  private final HttpClient client = HttpClient.newHttpClient();
  private final String base;
  private final String run;
  private final long endsAt;

  private JavaWriter(String base, String run, long endsAt) {
    this.base = base;
    this.run = run;
    this.endsAt = endsAt;
  }

  public static void main(String[] arguments) throws Exception {
    long seconds = Long.parseLong(arguments[2]);
    var writer = new JavaWriter(arguments[0], arguments[1], System.nanoTime() + seconds * 1_000_000_000L);
    var threads = new Thread[Integer.parseInt(arguments[3])];
    for (int number = 0; number < threads.length; number++) {
      int thread = number;
      threads[number] = new Thread(() -> writer.writeOrExit(thread));
      threads[number].start();
    }
    for (var thread : threads) {
      thread.join();
    }
  }

  private void writeOrExit(int thread) {
    try {
      write(thread);
    } catch (Exception error) {
      error.printStackTrace();
      System.exit(1);
    }
  }

  private void write(int thread) throws Exception {
    long beganMs = System.currentTimeMillis();
    int samples = 0;
    for (int request = 0; request == 0 || System.nanoTime() < endsAt; request++) {
      int lines = request % LARGE_EVERY == 1 ? LARGE_LINES : SMALL_LINES;
      var body = new StringBuilder();
      for (int line = 0; line < lines; line++) {
        // Backwards, so that no sample is too far ahead.
        long timeMs = beganMs - samples - line;
        body.append("java,run=" + run + ",thread=" + thread + " value=" + line + " " + timeMs + "\n");
      }
      expect(204, "/write?precision=ms", "text/plain", body.toString());
      samples += lines;
      if (request % LARGE_EVERY == 2) {
        String query = URLEncoder.encode("1 + " + request, StandardCharsets.UTF_8);
        String answer = expect(200, "/api/v1/query", "application/x-www-form-urlencoded", "time=&query=" + query);
        if (!answer.contains("\"" + (1 + request) + "\"")) {
          throw new IllegalStateException(answer);
        }
      }
      Thread.sleep(20); // The pace of a program that measures.
    }
    System.out.println(thread + " " + samples);
  }

  private String expect(int status, String path, String type, String body) throws Exception {
    var request = HttpRequest.newBuilder(URI.create(base + path))
        .timeout(Duration.ofSeconds(60))
        .header("content-type", type)
        .POST(BodyPublishers.ofString(body))
        .build();
    HttpResponse<String> answer = client.send(request, BodyHandlers.ofString());
    if (answer.statusCode() != status) {
      throw new IllegalStateException(path + " -> " + answer.statusCode() + " " + answer.body());
    }
    return answer.body();
  }
}
