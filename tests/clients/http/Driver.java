import java.io.FileInputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublisher;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.util.Arrays;
import java.util.Base64;
import java.util.Random;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

/**
 * Puts and gets over HTTPS with Java's own client. The arguments: the authority's certificate, the path of a queue, a
 * user and a password. It prints what it saw, a line each.
 */
public final class Driver {
    private static HttpClient client;
    private static String base;
    private static String authorization;

    public static void main(String[] arguments) throws Exception {
        KeyStore believed = KeyStore.getInstance(KeyStore.getDefaultType());
        believed.load(null);
        try (FileInputStream file = new FileInputStream(arguments[0])) {
            believed.setCertificateEntry("authority", CertificateFactory.getInstance("X.509").generateCertificate(file));
        }
        TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(believed);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, trust.getTrustManagers(), null);
        client = HttpClient.newBuilder().sslContext(context).build();
        base = arguments[1];
        String credentials = arguments[2] + ":" + arguments[3];
        authorization = "Basic " + Base64.getEncoder().encodeToString(credentials.getBytes(StandardCharsets.UTF_8));

        String text = "zwei Tonnen Gerste: \u00e4";
        HttpResponse<byte[]> put = ask("POST", "/message", BodyPublishers.ofString(text), "text/plain;charset=utf-8");
        System.out.println("put " + put.statusCode());
        HttpResponse<byte[]> shown = ask("GET", "/message", BodyPublishers.noBody(), null);
        boolean same = shown.headers().firstValue("ibm-mq-md-messageId").equals(put.headers().firstValue("ibm-mq-md-messageId"));
        System.out.println("shown " + shown.statusCode() + " " + is(shown, text) + " " + same);
        HttpResponse<byte[]> got = ask("DELETE", "/message", BodyPublishers.noBody(), null);
        System.out.println("got " + got.statusCode() + " " + is(got, text));
        byte[] large = new byte[1 << 20];
        new Random(7).nextBytes(large);
        ask("POST", "/message", BodyPublishers.ofByteArray(large), "application/octet-stream");
        HttpResponse<byte[]> back = ask("DELETE", "/message?wait=5000", BodyPublishers.noBody(), null);
        System.out.println("large " + back.statusCode() + " " + Arrays.equals(back.body(), large));
        HttpResponse<byte[]> none = ask("DELETE", "/message?wait=1", BodyPublishers.noBody(), null);
        System.out.println("none " + none.statusCode() + " " + none.version());
    }

    private static boolean is(HttpResponse<byte[]> response, String text) {
        return new String(response.body(), StandardCharsets.UTF_8).equals(text);
    }

    private static HttpResponse<byte[]> ask(String method, String path, BodyPublisher body, String media)
            throws Exception {
        HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(base + path)).method(method, body);
        request.header("Authorization", authorization).header("ibm-mq-rest-csrf-token", "any");
        if (media != null) {
            request.header("Content-Type", media);
        }
        return client.send(request.build(), BodyHandlers.ofByteArray());
    }
}
