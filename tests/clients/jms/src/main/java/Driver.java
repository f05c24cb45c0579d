import jakarta.jms.BytesMessage;
import jakarta.jms.Connection;
import jakarta.jms.Destination;
import jakarta.jms.JMSException;
import jakarta.jms.MapMessage;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.ObjectMessage;
import jakarta.jms.Queue;
import jakarta.jms.QueueBrowser;
import jakarta.jms.Session;
import jakarta.jms.TemporaryQueue;
import jakarta.jms.TextMessage;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.Collections;
import java.util.Enumeration;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import java.util.TreeMap;
import org.apache.qpid.jms.JmsConnectionFactory;

/**
 * Qpid JMS as an unmodified client.
 *
 * <pre>
 * Driver put|get|browse|nowait|request|reply|relay|transacted QUEUE --url amqp[s]://HOST:PORT
 *        [--user U --password P] [--ca FILE] [--count N] [--kind text|binary|map|large] [--size BYTES]
 *        [--props] [--wait SECONDS] [--prefetch N] [--selector TEXT]
 * </pre>
 *
 * <p>One JSON line a message on standard output; {"error": …} and exit code 1 where the other side refused.
 * {@code nowait} gets with receiveNoWait, {@code request} asks over a temporary queue, {@code reply} answers,
 * {@code relay} puts by a producer without a destination, {@code transacted} asks for a transaction.
 */
public final class Driver {
    private static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    private final Map<String, String> options;
    private final int count;

    private Driver(Map<String, String> options) {
        this.options = options;
        this.count = Integer.parseInt(options.getOrDefault("count", "1"));
    }

    public static void main(String[] args) throws Exception {
        Map<String, String> options = new HashMap<>();
        for (int i = 2; i < args.length; i++) {
            boolean flag = args[i].equals("--props");
            options.put(args[i].substring(2), flag ? "yes" : args[i + 1]);
            i += flag ? 0 : 1;
        }
        try {
            new Driver(options).run(args[0], args[1]);
        } catch (JMSException error) {
            // The client's exceptions carry "description [condition = name]".
            String text = String.valueOf(error.getMessage());
            int at = text.lastIndexOf("[condition = ");
            String condition = at < 0 ? error.getClass().getSimpleName() : text.substring(at + 13, text.length() - 1);
            String description = at < 0 ? text : text.substring(0, at).strip();
            show("{\"error\":{\"condition\":" + quoted(condition) + ",\"description\":" + quoted(description) + "}}");
            System.exit(1);
        }
        System.exit(0);
    }

    private void run(String command, String queueName) throws Exception {
        try (Connection connection = factory().createConnection()) {
            connection.start();
            boolean transacted = command.equals("transacted");
            Session session = transacted
                ? connection.createSession(Session.SESSION_TRANSACTED)
                : connection.createSession(Session.AUTO_ACKNOWLEDGE);
            Queue queue = session.createQueue(queueName);
            switch (command) {
                case "put", "transacted" -> put(session, session.createProducer(queue), null);
                case "relay" -> put(session, session.createProducer(null), queue);
                case "get" -> get(session, queue);
                case "nowait" -> nowait(session, queue);
                case "browse" -> browse(session, queue);
                case "request" -> request(session, queue);
                case "reply" -> reply(session, queue);
                default -> throw new IllegalArgumentException(command);
            }
            if (transacted) {
                session.commit();
            }
        }
    }

    private JmsConnectionFactory factory() {
        StringBuilder url = new StringBuilder(options.get("url"));
        url.append("?jms.prefetchPolicy.all=").append(options.getOrDefault("prefetch", "10"));
        url.append("&jms.connectTimeout=20000&jms.requestTimeout=60000&jms.sendTimeout=120000&amqp.maxFrameSize=1048576");
        if (options.containsKey("ca")) {
            url.append("&transport.trustStoreLocation=").append(options.get("ca")).append("&transport.trustStoreType=PEM");
        }
        JmsConnectionFactory factory = new JmsConnectionFactory(url.toString());
        if (options.containsKey("user")) {
            factory.setUsername(options.get("user"));
            factory.setPassword(options.get("password"));
        }
        return factory;
    }

    private long waitMillis() {
        return (long) (Double.parseDouble(options.getOrDefault("wait", "20")) * 1000);
    }

    private void put(Session session, MessageProducer producer, Destination destination) throws Exception {
        for (int number = 0; number < count; number++) {
            Message message = make(session, number);
            if (destination == null) {
                producer.send(message);
            } else {
                producer.send(destination, message);
            }
            if (message instanceof BytesMessage bytes) {
                bytes.reset();
            }
            describe(message);
        }
    }

    private void get(Session session, Queue queue) throws Exception {
        MessageConsumer consumer = session.createConsumer(queue, options.get("selector"));
        for (int number = 0; number < count; number++) {
            Message message = consumer.receive(waitMillis());
            if (message == null) {
                return;
            }
            describe(message);
        }
        consumer.close();
    }

    /** Gets until the queue says that nothing is there. */
    private void nowait(Session session, Queue queue) throws Exception {
        MessageConsumer consumer = session.createConsumer(queue, options.get("selector"));
        for (Message message = consumer.receiveNoWait(); message != null; message = consumer.receiveNoWait()) {
            describe(message);
        }
        consumer.close();
    }

    private void browse(Session session, Queue queue) throws Exception {
        QueueBrowser browser = session.createBrowser(queue, options.get("selector"));
        for (Object message : Collections.list((Enumeration<?>) browser.getEnumeration())) {
            describe((Message) message);
        }
        browser.close();
    }

    private void request(Session session, Queue queue) throws Exception {
        TemporaryQueue replies = session.createTemporaryQueue();
        MessageProducer producer = session.createProducer(queue);
        MessageConsumer consumer = session.createConsumer(replies);
        for (int number = 0; number < count; number++) {
            Message message = make(session, number);
            message.setJMSReplyTo(replies);
            producer.send(message);
            Message answer = consumer.receive(waitMillis());
            if (answer == null) {
                return;
            }
            describe(answer);
        }
        consumer.close();
        replies.delete();
    }

    private void reply(Session session, Queue queue) throws Exception {
        MessageConsumer consumer = session.createConsumer(queue);
        MessageProducer producer = session.createProducer(null);
        for (int number = 0; number < count; number++) {
            Message message = consumer.receive(waitMillis());
            if (message == null) {
                return;
            }
            TextMessage answer = session.createTextMessage("answer to " + ((TextMessage) message).getText());
            answer.setJMSCorrelationID(message.getJMSMessageID());
            producer.send(message.getJMSReplyTo(), answer);
            describe(message);
        }
        consumer.close();
    }

    private Message make(Session session, int number) throws Exception {
        String kind = options.getOrDefault("kind", "text");
        Message message;
        if (kind.equals("text")) {
            message = session.createTextMessage("message " + number + ": naïve façade, 信封");
        } else if (kind.equals("map")) {
            MapMessage map = session.createMapMessage();
            map.setString("customer", "Zoë");
            map.setLong("count", 3);
            map.setBoolean("paid", true);
            map.setDouble("ratio", 0.25);
            map.setLong("number", number);
            message = map;
        } else {
            BytesMessage bytes = session.createBytesMessage();
            byte[] block = MessageDigest.getInstance("SHA-256").digest(("jms " + number).getBytes(StandardCharsets.UTF_8));
            for (int left = Integer.parseInt(options.getOrDefault("size", "2048")); left > 0; left -= block.length) {
                bytes.writeBytes(block, 0, Math.min(left, block.length));
            }
            message = bytes;
        }
        if (options.containsKey("props")) {
            message.setStringProperty("colour", "grün");
            message.setIntProperty("number", 42);
            message.setLongProperty("big", 1234567890123L);
            message.setBooleanProperty("flag", true);
            message.setDoubleProperty("ratio", 2.5);
        }
        return message;
    }

    private static void describe(Message message) throws Exception {
        String kind;
        byte[] body;
        if (message instanceof TextMessage text) {
            kind = "text";
            body = text.getText().getBytes(StandardCharsets.UTF_8);
        } else if (message instanceof BytesMessage bytes) {
            kind = "binary";
            body = new byte[Math.toIntExact(bytes.getBodyLength())];
            bytes.readBytes(body);
        } else if (message instanceof MapMessage map) {
            Map<Object, Object> fields = new HashMap<>();
            for (Object name : Collections.list((Enumeration<?>) map.getMapNames())) {
                fields.put(name, map.getObject((String) name));
            }
            kind = "map";
            body = json(fields).getBytes(StandardCharsets.UTF_8);
        } else if (message instanceof ObjectMessage object && object.getObject() instanceof Map<?, ?> map) {
            // A map without the annotation that JMS clients give theirs.
            kind = "map";
            body = json(map).getBytes(StandardCharsets.UTF_8);
        } else {
            kind = message.getClass().getSimpleName();
            body = new byte[0];
        }
        Map<Object, Object> properties = new HashMap<>();
        for (Object name : Collections.list((Enumeration<?>) message.getPropertyNames())) {
            if (!((String) name).startsWith("JMS")) {
                properties.put(name, message.getObjectProperty((String) name));
            }
        }
        String digest = HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(body));
        String id = message.getJMSMessageID();
        show("{\"kind\":" + quoted(kind) + ",\"sha256\":\"" + digest + "\",\"length\":" + body.length
            + ",\"properties\":" + json(properties) + ",\"message_id\":" + (id == null ? "null" : quoted(id))
            + ",\"correlation_id\":" + (message.getJMSCorrelationID() == null ? "null" : quoted(message.getJMSCorrelationID())) + "}");
    }

    /** JSON with sorted keys and nothing between the tokens. */
    private static String json(Map<?, ?> map) {
        StringBuilder text = new StringBuilder("{");
        Map<String, Object> sorted = new TreeMap<>();
        map.forEach((key, value) -> sorted.put(String.valueOf(key), value));
        sorted.forEach((key, value) -> {
            text.append(text.length() > 1 ? "," : "").append(quoted(key)).append(":");
            text.append(value instanceof Number || value instanceof Boolean ? value.toString() : quoted(String.valueOf(value)));
        });
        return text.append("}").toString();
    }

    private static String quoted(String text) {
        StringBuilder quoted = new StringBuilder("\"");
        for (char each : text.toCharArray()) {
            switch (each) {
                case '"', '\\' -> quoted.append('\\').append(each);
                default -> {
                    if (each < ' ') {
                        quoted.append(String.format("\\u%04x", (int) each));
                    } else {
                        quoted.append(each);
                    }
                }
            }
        }
        return quoted.append('"').toString();
    }

    private static void show(String line) {
        OUT.println(line);
    }
}
