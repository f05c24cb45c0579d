import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.QueueBrowser;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Enumeration;
import java.util.List;
import java.util.Objects;
import org.apache.qpid.jms.JmsConnectionFactory;

/** Transacted sessions of Qpid JMS: {@code Units URL QUEUE QUEUE}, a line a step. */
public final class Units {
    private static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    private static final long WAIT_MILLIS = 20_000;
    private static final int COUNT = 5;

    private Units() {}

    public static void main(String[] args) throws Exception {
        try (Connection connection = new JmsConnectionFactory(args[0]).createConnection()) {
            connection.start();
            Session session = connection.createSession(Session.SESSION_TRANSACTED);
            Queue a = session.createQueue(args[1]);
            Queue b = session.createQueue(args[2]);

            put(session, b);
            session.rollback();
            OUT.println("put and rolled back: " + depth(connection, b) + " on B");
            put(session, b);
            session.commit();
            OUT.println("put and committed: " + depth(connection, b) + " on B");

            MessageConsumer consumer = session.createConsumer(b);
            show(get(consumer));
            session.rollback();
            List<Message> again = get(consumer);
            show(again);
            consumer.close();
            MessageProducer producer = session.createProducer(a);
            for (Message message : again) {
                producer.send(session.createTextMessage(((TextMessage) message).getText()));
            }
            session.commit();
            OUT.println("moved and committed: " + depth(connection, b) + " on B, " + depth(connection, a) + " on A");

            Session other = connection.createSession(Session.SESSION_TRANSACTED);
            session.createProducer(b).send(session.createTextMessage("one"));
            other.createProducer(b).send(other.createTextMessage("two"));
            session.commit();
            other.commit();
            OUT.println("two sessions: " + depth(connection, b) + " on B");

            put(session, b);
            session.close();
            OUT.println("closed without commit: " + depth(connection, b) + " on B");
        }
        System.exit(0);
    }

    private static void put(Session session, Queue queue) throws JMSException {
        MessageProducer producer = session.createProducer(queue);
        for (int number = 0; number < COUNT; number++) {
            producer.send(session.createTextMessage(String.valueOf(number)));
        }
        producer.close();
    }

    private static List<Message> get(MessageConsumer consumer) throws JMSException {
        List<Message> got = new ArrayList<>();
        for (int number = 0; number < COUNT; number++) {
            got.add(Objects.requireNonNull(consumer.receive(WAIT_MILLIS), "no message came"));
        }
        return got;
    }

    private static void show(List<Message> messages) throws JMSException {
        StringBuilder line = new StringBuilder("got");
        boolean redelivered = false;
        for (Message message : messages) {
            line.append(' ').append(((TextMessage) message).getText());
            redelivered |= message.getJMSRedelivered();
        }
        OUT.println(line.append(" redelivered ").append(redelivered));
    }

    /** What a browser sees: what is locked by an open session is not among it. */
    private static int depth(Connection connection, Queue queue) throws JMSException {
        Session session = connection.createSession(Session.AUTO_ACKNOWLEDGE);
        QueueBrowser browser = session.createBrowser(queue);
        int depth = Collections.list((Enumeration<?>) browser.getEnumeration()).size();
        session.close();
        return depth;
    }
}
