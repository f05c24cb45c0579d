import jakarta.jms.BytesMessage;
import jakarta.jms.CompletionListener;
import jakarta.jms.Connection;
import jakarta.jms.DeliveryMode;
import jakarta.jms.InvalidDestinationException;
import jakarta.jms.InvalidSelectorException;
import jakarta.jms.JMSConsumer;
import jakarta.jms.JMSContext;
import jakarta.jms.JMSException;
import jakarta.jms.JMSProducer;
import jakarta.jms.MapMessage;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.ObjectMessage;
import jakarta.jms.Queue;
import jakarta.jms.QueueBrowser;
import jakarta.jms.Session;
import jakarta.jms.StreamMessage;
import jakarta.jms.TemporaryQueue;
import jakarta.jms.TemporaryTopic;
import jakarta.jms.TextMessage;
import jakarta.jms.Topic;
import jakarta.jms.TopicSubscriber;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Enumeration;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.qpid.jms.JmsConnectionFactory;

/**
 * What JMS promises, asked of a queue manager by an unmodified Qpid JMS.
 *
 * <pre>
 * Features all amqp://HOST:PORT QUEUE          every check, one JSON line each
 * Features produce URL QUEUE COUNT             persistent messages, one after the other; says "sent N" after each
 * Features consume URL QUEUE COUNT             until COUNT different ones came, each acknowledged; says "got N"
 * </pre>
 *
 * <p>The queue is empty before each check and after it.
 */
public final class Features {
    private static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    private static final long WAIT = 20_000;
    /** A message that is not to come would have come by then. */
    private static final long SOON = 300;

    private final String url;
    private final String name;

    private Features(String url, String name) {
        this.url = url;
        this.name = name;
    }

    private interface Check {
        void run() throws Exception;
    }

    public static void main(String[] args) throws Exception {
        Features features = new Features(args[1], args[2]);
        switch (args[0]) {
            case "all" -> features.all();
            case "produce" -> features.produce(Integer.parseInt(args[3]));
            case "consume" -> features.consume(Integer.parseInt(args[3]));
            default -> throw new IllegalArgumentException(args[0]);
        }
        System.exit(0);
    }

    private void all() {
        check("every_type_of_message_comes_as_it_was_sent", this::types);
        check("the_simplified_api_sends_and_receives", this::simplified);
        check("a_selector_on_properties_and_headers_takes_what_it_names", this::selectors);
        check("a_correlation_id_is_found_among_many", this::correlation);
        check("a_browser_sees_all_in_order_and_takes_nothing", this::browser);
        check("what_is_no_selector_is_an_invalid_selector", this::invalidSelector);
        check("a_queue_that_is_not_there_is_an_invalid_destination", this::invalidDestination);
        check("receive_no_wait_gets_what_is_there_with_and_without_prefetch", this::noWait);
        check("the_most_urgent_comes_first", this::priorities);
        check("a_message_expires", this::timeToLive);
        check("a_delayed_message_comes_at_its_time", this::delay);
        check("an_asynchronous_send_completes", this::completion);
        check("an_asynchronous_send_that_is_refused_says_so", this::refusedCompletion);
        check("recover_delivers_again_what_was_not_acknowledged", this::recover);
        check("client_acknowledge_is_of_all_that_came_before", this::clientAcknowledge);
        check("dups_ok_acknowledges", this::dupsOk);
        check("what_a_listener_fails_on_comes_again", this::failingListener);
        check("a_closed_consumer_gives_back_what_it_had_prefetched", this::prefetched);
        check("a_temporary_queue_answers_and_goes", this::temporary);
        check("non_persistent_messages_say_so", this::nonPersistent);
        check("groups_and_users_are_properties", this::properties);
        check("messages_of_a_group_go_to_one_consumer_in_order", this::groups);
        check("each_subscriber_of_a_topic_gets_each_publication", this::subscribers);
        check("a_durable_subscriber_gets_what_came_while_it_was_away_until_it_unsubscribes", this::durableSubscriber);
        check("a_shared_subscription_is_one_durable_or_not", this::shared);
        check("a_subscriber_selects_and_leaves_its_own_publications_out", this::selectsAndLeavesOut);
        check("a_transacted_session_publishes_and_gets_as_a_whole", this::transactedTopic);
        check("a_temporary_topic_answers_all_that_ask", this::temporaryTopic);
    }

    private void check(String what, Check check) {
        String error = "null";
        try {
            check.run();
        } catch (Throwable thrown) {
            StringBuilder text = new StringBuilder(thrown.toString());
            for (StackTraceElement element : thrown.getStackTrace()) {
                if (element.getClassName().startsWith("Features")) {
                    text.append(" at line ").append(element.getLineNumber());
                }
            }
            error = "\"" + text.toString().replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", " ") + "\"";
        }
        OUT.println("{\"check\":\"" + what + "\",\"error\":" + error + "}");
        try (Connection connection = connect(""); Session session = connection.createSession()) {
            MessageConsumer consumer = session.createConsumer(session.createQueue(name));
            while (consumer.receiveNoWait() != null) {
                continue;
            }
        } catch (JMSException gone) {
            OUT.println("{\"check\":\"cleaning up after " + what + "\",\"error\":\"" + gone.getMessage() + "\"}");
        }
    }

    private Connection connect(String options) throws JMSException {
        Connection connection = new JmsConnectionFactory(url + options).createConnection();
        connection.start();
        return connection;
    }

    private static void same(Object wanted, Object got) {
        if (wanted == null ? got != null : !wanted.equals(got)) {
            throw new AssertionError("wanted " + wanted + ", got " + got);
        }
    }

    private static void is(boolean condition, String what) {
        if (!condition) {
            throw new AssertionError(what);
        }
    }

    private static String text(Message message) throws JMSException {
        is(message != null, "no message came");
        return ((TextMessage) message).getText();
    }

    private interface Body {
        void run(Session session, Queue queue) throws Exception;
    }

    private void with(int mode, String options, Body body) throws Exception {
        try (Connection connection = connect(options); Session session = connection.createSession(mode)) {
            body.run(session, session.createQueue(name));
        }
    }

    private void auto(Body body) throws Exception {
        with(Session.AUTO_ACKNOWLEDGE, "", body);
    }

    private static void send(Session session, Queue queue, String... texts) throws JMSException {
        try (MessageProducer producer = session.createProducer(queue)) {
            for (String text : texts) {
                producer.send(session.createTextMessage(text));
            }
        }
    }

    private void types() throws Exception {
        auto((session, queue) -> {
            MessageProducer producer = session.createProducer(queue);
            MessageConsumer consumer = session.createConsumer(queue);
            producer.send(session.createTextMessage("naïve 信封"));
            same("naïve 信封", text(consumer.receive(WAIT)));
            BytesMessage bytes = session.createBytesMessage();
            bytes.writeLong(42);
            producer.send(bytes);
            same(42L, ((BytesMessage) consumer.receive(WAIT)).readLong());
            MapMessage map = session.createMapMessage();
            map.setInt("number", 7);
            map.setBytes("bytes", new byte[] {1, 2});
            producer.send(map);
            MapMessage gotMap = (MapMessage) consumer.receive(WAIT);
            same(7, gotMap.getInt("number"));
            same(2, gotMap.getBytes("bytes").length);
            StreamMessage stream = session.createStreamMessage();
            stream.writeString("a");
            stream.writeDouble(2.5);
            producer.send(stream);
            StreamMessage gotStream = (StreamMessage) consumer.receive(WAIT);
            same("a", gotStream.readString());
            same(2.5, gotStream.readDouble());
            ObjectMessage object = session.createObjectMessage(new ArrayList<>(List.of("x", "y")));
            producer.send(object);
            same(List.of("x", "y"), ((ObjectMessage) consumer.receive(WAIT)).getObject());
            producer.send(session.createMessage());
            is(consumer.receive(WAIT) != null, "a message without a body came");
        });
    }

    private void simplified() throws Exception {
        try (JMSContext context = new JmsConnectionFactory(url).createContext()) {
            Queue queue = context.createQueue(name);
            JMSProducer producer = context.createProducer();
            producer.setProperty("colour", "green").setPriority(7).setTimeToLive(60_000).setJMSType("trade").send(queue, "hello");
            JMSConsumer consumer = context.createConsumer(queue, "colour = 'green' AND JMSPriority = 7 AND JMSType = 'trade'");
            same("hello", consumer.receiveBody(String.class, WAIT));
            context.createProducer().send(queue, Collections.singletonMap("k", 1));
            is(consumer.receive(SOON) == null, "the selector is still there");
            consumer.close();
            same(1, context.createConsumer(queue).receiveBody(java.util.Map.class, WAIT).get("k"));
        }
    }

    private void selectors() throws Exception {
        auto((session, queue) -> {
            MessageProducer producer = session.createProducer(queue);
            for (int number = 0; number < 20; number++) {
                TextMessage message = session.createTextMessage("" + number);
                message.setIntProperty("number", number);
                message.setStringProperty("parity", number % 2 == 0 ? "even" : "odd");
                message.setBooleanProperty("small", number < 10);
                message.setDoubleProperty("half", number / 2.0);
                message.setJMSCorrelationID("c" + number);
                producer.send(message, number % 4 == 0 ? DeliveryMode.PERSISTENT : DeliveryMode.NON_PERSISTENT, number % 3, 0);
            }
            same(List.of("17", "13", "15", "11", "19"), take(session, queue, "parity = 'odd' AND NOT small", 5).stream()
                .sorted((a, b) -> List.of("17", "13", "15", "11", "19").indexOf(a) - List.of("17", "13", "15", "11", "19").indexOf(b)).toList());
            same(List.of("5"), take(session, queue, "number BETWEEN 4 AND 5 AND half <> 2", 1));
            same(List.of("6"), take(session, queue, "JMSCorrelationID IN ('c6', 'nobody')", 1));
            same(List.of("8"), take(session, queue, "JMSDeliveryMode = 'PERSISTENT' AND JMSPriority = 2 AND small", 1));
            same(List.of("14"), take(session, queue, "half * 2 + 1 > 14.5 AND parity LIKE 'ev_n' AND number < 16", 1));
            same(List.of(), take(session, queue, "absent = 1 OR number > 1000", 1));
        });
    }

    private static List<String> take(Session session, Queue queue, String selector, int count) throws JMSException {
        List<String> texts = new ArrayList<>();
        try (MessageConsumer consumer = session.createConsumer(queue, selector)) {
            for (Message next = consumer.receive(SOON); next != null; next = texts.size() < count ? consumer.receive(WAIT) : consumer.receiveNoWait()) {
                texts.add(text(next));
            }
        }
        return texts;
    }

    private void correlation() throws Exception {
        auto((session, queue) -> {
            MessageProducer producer = session.createProducer(queue);
            producer.setDeliveryMode(DeliveryMode.NON_PERSISTENT);
            List<String> ids = new ArrayList<>();
            for (int number = 0; number < 2_000; number++) {
                TextMessage message = session.createTextMessage("" + number);
                message.setJMSCorrelationID("order-" + number);
                producer.send(message);
                ids.add(message.getJMSMessageID());
            }
            for (int number : new int[] {1_999, 0, 1_000, 1_001}) {
                same(List.of("" + number), take(session, queue, "JMSCorrelationID = 'order-" + number + "'", 1));
                is(session.createConsumer(queue, "JMSCorrelationID = 'order-" + number + "'").receiveNoWait() == null, "it is gone");
            }
            same(List.of("77"), take(session, queue, "JMSMessageID = '" + ids.get(77) + "' AND JMSPriority = 4", 1));
            // One that waits hears of the answer when it comes.
            MessageConsumer waiting = session.createConsumer(queue, "JMSCorrelationID = 'late'");
            is(waiting.receive(SOON) == null, "nothing has come yet");
            TextMessage late = session.createTextMessage("late");
            late.setJMSCorrelationID("late");
            producer.send(late);
            same("late", text(waiting.receive(WAIT)));
        });
    }

    private void browser() throws Exception {
        auto((session, queue) -> {
            MessageProducer producer = session.createProducer(queue);
            for (int number = 0; number < 30; number++) {
                TextMessage message = session.createTextMessage("" + number);
                message.setIntProperty("number", number);
                producer.send(message);
            }
            for (int round = 0; round < 2; round++) {
                same(30, browse(session, queue, null).size());
                same(List.of("3", "4", "5"), browse(session, queue, "number BETWEEN 3 AND 5"));
                same(List.of(), browse(session, queue, "number > 100"));
            }
        });
    }

    private static List<String> browse(Session session, Queue queue, String selector) throws JMSException {
        List<String> texts = new ArrayList<>();
        try (QueueBrowser browser = session.createBrowser(queue, selector)) {
            Enumeration<?> messages = browser.getEnumeration();
            while (messages.hasMoreElements()) {
                texts.add(text((Message) messages.nextElement()));
            }
        }
        return texts;
    }

    private void invalidSelector() throws Exception {
        auto((session, queue) -> {
            for (String wrong : List.of("colour = ", "JMSPriority > 'high'", "a LIKE 1", "(a = 1")) {
                try {
                    session.createConsumer(queue, wrong);
                    throw new AssertionError(wrong + " was taken");
                } catch (InvalidSelectorException error) {
                    continue;
                }
            }
        });
    }

    private void invalidDestination() throws Exception {
        auto((session, queue) -> {
            try {
                session.createProducer(session.createQueue("NO.SUCH.QUEUE"));
                throw new AssertionError("a producer was made");
            } catch (InvalidDestinationException error) {
                is(error.getMessage().contains("2085"), error.getMessage());
            }
            try {
                session.createConsumer(session.createQueue("NO.SUCH.QUEUE"));
                throw new AssertionError("a consumer was made");
            } catch (InvalidDestinationException error) {
                is(error.getMessage().contains("2085"), error.getMessage());
            }
        });
    }

    private void groups() throws Exception {
        with(Session.AUTO_ACKNOWLEDGE, "?jms.prefetchPolicy.all=1", (session, unused) -> {
            Queue queue = session.createQueue(name + ".GROUPS");
            MessageConsumer one = session.createConsumer(queue);
            MessageConsumer two = session.createConsumer(queue);
            try (MessageProducer producer = session.createProducer(queue)) {
                for (int number = 0; number < 12; number++) {
                    TextMessage message = session.createTextMessage("" + number);
                    message.setStringProperty("JMSXGroupID", number % 2 == 0 ? "even" : "odd");
                    message.setIntProperty("JMSXGroupSeq", number / 2 + 1);
                    producer.send(message);
                }
            }
            // Each has room for one, so each has got a group by now; which is whose is nobody's promise.
            int first = Integer.parseInt(text(one.receive(WAIT)));
            int other = Integer.parseInt(text(two.receive(WAIT)));
            same(1, first + other);
            same("" + (first + 2), text(one.receive(WAIT)));
            one.close();
            List<Integer> rest = new ArrayList<>();
            for (int number = 0; number < 9; number++) {
                rest.add(Integer.parseInt(text(two.receive(WAIT))));
            }
            for (int parity = 0; parity < 2; parity++) {
                int which = parity;
                List<Integer> group = rest.stream().filter(number -> number % 2 == which).toList();
                same(group.stream().sorted().toList(), group);
            }
            same(9, Set.copyOf(rest).size());
        });
    }

    private interface TopicBody {
        void run(Connection connection, Session session, Topic topic) throws Exception;
    }

    /** A connection of that client id, or of none, and a topic of the check's own. */
    private void topic(String client, String topic, TopicBody body) throws Exception {
        String options = client == null ? "" : "?jms.clientID=" + client;
        try (Connection connection = connect(options); Session session = connection.createSession()) {
            body.run(connection, session, session.createTopic("jms/" + topic));
        }
    }

    private static void publish(Session session, Topic topic, String... texts) throws JMSException {
        try (MessageProducer producer = session.createProducer(topic)) {
            for (String text : texts) {
                producer.send(session.createTextMessage(text));
            }
        }
    }

    private static List<String> rest(MessageConsumer consumer) throws JMSException {
        List<String> texts = new ArrayList<>();
        for (Message next = consumer.receiveNoWait(); next != null; next = consumer.receiveNoWait()) {
            texts.add(text(next));
        }
        return texts;
    }

    private void subscribers() throws Exception {
        topic(null, "a/b", (connection, session, topic) -> {
            MessageConsumer exact = session.createConsumer(topic);
            MessageConsumer below = session.createConsumer(session.createTopic("jms/a/#"));
            MessageConsumer other = session.createConsumer(session.createTopic("jms/b"));
            publish(session, topic, "1", "2");
            MessageProducer anonymous = session.createProducer(null);
            anonymous.send(topic, session.createTextMessage("3"));
            anonymous.send(session.createTopic("jms/a"), session.createTextMessage("4"));
            Message first = exact.receive(WAIT);
            same("1", text(first));
            same(topic, first.getJMSDestination());
            same(List.of("2", "3"), rest(exact));
            same(List.of("1", "2", "3", "4"), rest(below));
            same(List.of(), rest(other));
            is(session.createConsumer(session.createQueue(name)).receiveNoWait() == null, "no queue got any");
        });
    }

    private void durableSubscriber() throws Exception {
        topic("durable", "d", (connection, session, topic) -> {
            TopicSubscriber subscriber = session.createDurableSubscriber(topic, "sub");
            publish(session, topic, "here");
            same(List.of("here"), rest(subscriber));
            try {
                session.unsubscribe("sub");
                throw new AssertionError("a subscription in use was ended");
            } catch (JMSException refused) {
                is(!(refused instanceof InvalidDestinationException), refused.getMessage());
            }
            subscriber.close();
            publish(session, topic, "away");
        });
        topic(null, "d", (connection, session, topic) -> publish(session, topic, "not connected"));
        topic("durable", "d", (connection, session, topic) -> {
            MessageConsumer subscriber = session.createDurableConsumer(topic, "sub");
            same(List.of("away", "not connected"), rest(subscriber));
            subscriber.close();
            subscriber = session.createDurableConsumer(topic, "sub", "colour = 'red'", false);
            publish(session, topic, "not red");
            same(List.of(), rest(subscriber));
            subscriber.close();
            session.unsubscribe("sub");
            publish(session, topic, "nobody");
            subscriber = session.createDurableConsumer(topic, "sub");
            same(List.of(), rest(subscriber));
            subscriber.close();
            session.unsubscribe("sub");
            try {
                session.unsubscribe("sub");
                throw new AssertionError("a subscription that is not there was ended");
            } catch (InvalidDestinationException none) {
                return;
            }
        });
    }

    private interface Shared {
        MessageConsumer consumer(Session session, Topic topic) throws JMSException;
    }

    /** Two connections share what is published, and a client with the same subscription alone gets it all. */
    private void shares(String first, String second, String topic, Shared shared, boolean stays) throws Exception {
        topic(first, topic, (connection, session, ours) -> topic(second, topic, (other, elsewhere, theirs) -> {
            MessageConsumer one = shared.consumer(session, ours);
            MessageConsumer two = shared.consumer(elsewhere, theirs);
            MessageConsumer three = shared.consumer(session, ours);
            publish(session, ours, "a", "b", "c", "d", "e", "f");
            List<String> all = new ArrayList<>(rest(one));
            all.addAll(rest(two));
            all.addAll(rest(three));
            same(List.of("a", "b", "c", "d", "e", "f"), all.stream().sorted().toList());
            one.close();
            two.close();
            publish(session, ours, "left");
            same("left", text(three.receive(WAIT)));
            three.close();
            publish(session, ours, "nobody");
            MessageConsumer again = shared.consumer(session, ours);
            same(stays ? List.of("nobody") : List.of(), rest(again));
            again.close();
        }));
    }

    private void shared() throws Exception {
        shares(null, null, "s1", (session, topic) -> session.createSharedConsumer(topic, "pool"), false);
        shares(null, null, "s2", (session, topic) -> session.createSharedDurableConsumer(topic, "durable pool"), true);
        topic(null, "s2", (connection, session, topic) -> session.unsubscribe("durable pool"));
        topic("sharing", "s3", (connection, session, topic) -> {
            MessageConsumer one = session.createSharedDurableConsumer(topic, "pool", "n > 0");
            MessageConsumer two = session.createSharedDurableConsumer(topic, "pool", "n > 0");
            for (int number = 0; number < 4; number++) {
                TextMessage message = session.createTextMessage("" + number);
                message.setIntProperty("n", number);
                session.createProducer(topic).send(message);
            }
            List<String> all = new ArrayList<>(rest(one));
            all.addAll(rest(two));
            same(List.of("1", "2", "3"), all.stream().sorted().toList());
            one.close();
            two.close();
            session.unsubscribe("pool");
        });
    }

    private void selectsAndLeavesOut() throws Exception {
        topic("mine", "f", (connection, session, topic) -> topic("yours", "f", (other, elsewhere, same) -> {
            MessageConsumer red = session.createConsumer(topic, "colour = 'red'");
            MessageConsumer foreign = session.createConsumer(topic, null, true);
            for (Session sender : List.of(session, elsewhere)) {
                for (String colour : List.of("red", "blue")) {
                    TextMessage message = sender.createTextMessage(colour + (sender == session ? " mine" : " yours"));
                    message.setStringProperty("colour", colour);
                    sender.createProducer(topic).send(message);
                }
            }
            same(List.of("red mine", "red yours"), rest(red));
            same(List.of("red yours", "blue yours"), rest(foreign));
        }));
    }

    private void transactedTopic() throws Exception {
        topic(null, "t", (connection, session, topic) -> {
            MessageConsumer consumer = session.createConsumer(topic);
            try (Session unit = connection.createSession(true, Session.SESSION_TRANSACTED)) {
                MessageProducer producer = unit.createProducer(topic);
                producer.send(unit.createTextMessage("no"));
                unit.rollback();
                producer.send(unit.createTextMessage("1"));
                producer.send(unit.createTextMessage("2"));
                is(consumer.receive(SOON) == null, "nothing comes before the commit");
                unit.commit();
                same("1", text(consumer.receive(WAIT)));
                same("2", text(consumer.receive(WAIT)));
                MessageConsumer transacted = unit.createConsumer(topic);
                publish(session, topic, "again");
                same("again", text(transacted.receive(WAIT)));
                unit.rollback();
                Message again = transacted.receive(WAIT);
                same("again", text(again));
                is(again.getJMSRedelivered(), "it came again");
                unit.commit();
            }
        });
    }

    private void temporaryTopic() throws Exception {
        topic(null, "requests", (connection, session, topic) -> {
            MessageConsumer requests = session.createConsumer(topic);
            TemporaryTopic replies = session.createTemporaryTopic();
            MessageConsumer one = session.createConsumer(replies);
            MessageConsumer two = session.createConsumer(replies);
            TextMessage request = session.createTextMessage("question");
            request.setJMSReplyTo(replies);
            session.createProducer(topic).send(request);
            Message question = requests.receive(WAIT);
            same(replies, question.getJMSReplyTo());
            session.createProducer(null).send(question.getJMSReplyTo(), session.createTextMessage("answer"));
            same("answer", text(one.receive(WAIT)));
            same("answer", text(two.receive(WAIT)));
            one.close();
            two.close();
            replies.delete();
        });
    }

    private void noWait() throws Exception {
        for (String prefetch : List.of("0", "1", "1000")) {
            with(Session.AUTO_ACKNOWLEDGE, "?jms.prefetchPolicy.all=" + prefetch, (session, queue) -> {
                send(session, queue, "a", "b");
                MessageConsumer consumer = session.createConsumer(queue);
                same("a", text(consumer.receiveNoWait()));
                same("b", text(consumer.receiveNoWait()));
                is(consumer.receiveNoWait() == null, "nothing more is there");
                send(session, queue, "c");
                same("c", text(consumer.receive(WAIT)));
            });
        }
    }

    private void priorities() throws Exception {
        auto((session, queue) -> {
            MessageProducer producer = session.createProducer(queue);
            for (int priority = 0; priority < 10; priority++) {
                producer.send(session.createTextMessage("" + priority), DeliveryMode.PERSISTENT, priority, 0);
            }
            MessageConsumer consumer = session.createConsumer(queue);
            for (int priority = 9; priority >= 0; priority--) {
                Message message = consumer.receive(WAIT);
                same("" + priority, text(message));
                same(priority, message.getJMSPriority());
            }
        });
    }

    private void timeToLive() throws Exception {
        auto((session, queue) -> {
            MessageProducer producer = session.createProducer(queue);
            producer.send(session.createTextMessage("short"), DeliveryMode.PERSISTENT, 4, 100);
            producer.send(session.createTextMessage("long"), DeliveryMode.PERSISTENT, 4, 60_000);
            Thread.sleep(150);
            Message message = session.createConsumer(queue).receive(WAIT);
            same("long", text(message));
            is(message.getJMSExpiration() > System.currentTimeMillis(), "it says when it expires");
        });
    }

    private void delay() throws Exception {
        auto((session, queue) -> {
            MessageConsumer consumer = session.createConsumer(queue);
            MessageProducer producer = session.createProducer(queue);
            long before = System.currentTimeMillis();
            producer.setDeliveryDelay(1_000);
            producer.send(session.createTextMessage("later"));
            producer.setDeliveryDelay(0);
            producer.send(session.createTextMessage("now"));
            same("now", text(consumer.receive(WAIT)));
            is(consumer.receiveNoWait() == null, "it is not there yet");
            Message later = consumer.receive(WAIT);
            same("later", text(later));
            is(System.currentTimeMillis() - before >= 1_000, "it came too soon");
            is(later.getJMSDeliveryTime() >= before + 1_000, "it says when it was to come");
        });
    }

    private void completion() throws Exception {
        auto((session, queue) -> {
            int count = 200;
            CountDownLatch done = new CountDownLatch(count);
            AtomicInteger failed = new AtomicInteger();
            MessageProducer producer = session.createProducer(queue);
            CompletionListener listener = new CompletionListener() {
                @Override
                public void onCompletion(Message message) {
                    done.countDown();
                }

                @Override
                public void onException(Message message, Exception error) {
                    failed.incrementAndGet();
                    done.countDown();
                }
            };
            for (int number = 0; number < count; number++) {
                producer.send(session.createTextMessage("" + number), listener);
            }
            is(done.await(WAIT, TimeUnit.MILLISECONDS), done.getCount() + " sends did not complete");
            same(0, failed.get());
            MessageConsumer consumer = session.createConsumer(queue);
            for (int number = 0; number < count; number++) {
                same("" + number, text(consumer.receive(WAIT)));
            }
        });
    }

    private void refusedCompletion() throws Exception {
        auto((session, queue) -> {
            CountDownLatch done = new CountDownLatch(1);
            String[] said = new String[1];
            MessageProducer producer = session.createProducer(null);
            producer.send(session.createQueue("NO.SUCH.QUEUE"), session.createTextMessage("x"), new CompletionListener() {
                @Override
                public void onCompletion(Message message) {
                    done.countDown();
                }

                @Override
                public void onException(Message message, Exception error) {
                    said[0] = error.getMessage();
                    done.countDown();
                }
            });
            is(done.await(WAIT, TimeUnit.MILLISECONDS), "the send did not complete");
            is(said[0] != null && said[0].contains("2085"), "it was refused: " + said[0]);
        });
    }

    private void recover() throws Exception {
        with(Session.CLIENT_ACKNOWLEDGE, "", (session, queue) -> {
            send(session, queue, "a", "b", "c");
            MessageConsumer consumer = session.createConsumer(queue);
            Message first = consumer.receive(WAIT);
            is(!first.getJMSRedelivered(), "the first delivery is no other");
            same(1, first.getIntProperty("JMSXDeliveryCount"));
            consumer.receive(WAIT);
            session.recover();
            for (String wanted : List.of("a", "b", "c")) {
                Message again = consumer.receive(WAIT);
                same(wanted, text(again));
                same(!wanted.equals("c"), again.getJMSRedelivered());
                same(wanted.equals("c") ? 1 : 2, again.getIntProperty("JMSXDeliveryCount"));
                again.acknowledge();
            }
        });
        // A session that is closed without saying anything gives back, too, and the queue manager counts.
        with(Session.CLIENT_ACKNOWLEDGE, "", (session, queue) -> {
            send(session, queue, "d");
            is(session.createConsumer(queue).receive(WAIT) != null, "it came");
        });
        auto((session, queue) -> {
            Message again = session.createConsumer(queue).receive(WAIT);
            same("d", text(again));
            is(again.getJMSRedelivered() && again.getIntProperty("JMSXDeliveryCount") == 2, "it was delivered before");
        });
    }

    private void clientAcknowledge() throws Exception {
        with(Session.CLIENT_ACKNOWLEDGE, "", (session, queue) -> {
            send(session, queue, "a", "b", "c");
            MessageConsumer consumer = session.createConsumer(queue);
            consumer.receive(WAIT);
            consumer.receive(WAIT).acknowledge();
        });
        auto((session, queue) -> {
            MessageConsumer consumer = session.createConsumer(queue);
            same("c", text(consumer.receive(WAIT)));
            is(consumer.receive(SOON) == null, "a and b are gone");
        });
    }

    private void dupsOk() throws Exception {
        with(Session.DUPS_OK_ACKNOWLEDGE, "", (session, queue) -> {
            send(session, queue, "a", "b");
            MessageConsumer consumer = session.createConsumer(queue);
            same("a", text(consumer.receive(WAIT)));
            same("b", text(consumer.receive(WAIT)));
        });
        auto((session, queue) -> is(session.createConsumer(queue).receive(SOON) == null, "both are gone"));
    }

    private void failingListener() throws Exception {
        auto((session, queue) -> {
            send(session, queue, "a");
            CountDownLatch twice = new CountDownLatch(2);
            List<Integer> counts = Collections.synchronizedList(new ArrayList<>());
            session.createConsumer(queue).setMessageListener(message -> {
                try {
                    counts.add(message.getIntProperty("JMSXDeliveryCount"));
                } catch (JMSException error) {
                    counts.add(-1);
                }
                twice.countDown();
                if (twice.getCount() == 1) {
                    throw new IllegalStateException("the application fails on purpose");
                }
            });
            // The client releases it, and a release is no failed delivery.
            is(twice.await(WAIT, TimeUnit.MILLISECONDS), "it did not come again");
            same(2, counts.size());
        });
    }

    private void prefetched() throws Exception {
        auto((session, queue) -> {
            String[] texts = new String[50];
            for (int number = 0; number < texts.length; number++) {
                texts[number] = "" + number;
            }
            send(session, queue, texts);
            MessageConsumer first = session.createConsumer(queue);
            same("0", text(first.receive(WAIT)));
            first.close();
            MessageConsumer second = session.createConsumer(queue);
            for (int number = 1; number < texts.length; number++) {
                Message message = second.receive(WAIT);
                same("" + number, text(message));
                is(!message.getJMSRedelivered(), "message " + number + " was never given to an application before");
            }
        });
    }

    private void temporary() throws Exception {
        String[] gone = new String[1];
        auto((session, queue) -> {
            TemporaryQueue replies = session.createTemporaryQueue();
            gone[0] = replies.getQueueName();
            MessageConsumer consumer = session.createConsumer(replies, "JMSCorrelationID = 'mine'");
            TextMessage request = session.createTextMessage("question");
            request.setJMSReplyTo(replies);
            session.createProducer(queue).send(request);
            Message question = session.createConsumer(queue).receive(WAIT);
            MessageProducer answers = session.createProducer(null);
            for (String id : List.of("other", "mine")) {
                TextMessage answer = session.createTextMessage(id);
                answer.setJMSCorrelationID(id);
                answers.send(question.getJMSReplyTo(), answer);
            }
            same("mine", text(consumer.receive(WAIT)));
            consumer.close();
            replies.delete();
        });
        auto((session, queue) -> {
            try {
                session.createProducer(session.createQueue(gone[0]));
                throw new AssertionError("the temporary queue is still there");
            } catch (InvalidDestinationException error) {
                is(error.getMessage().contains("2085"), error.getMessage());
            }
        });
    }

    private void nonPersistent() throws Exception {
        auto((session, queue) -> {
            MessageProducer producer = session.createProducer(queue);
            producer.setDeliveryMode(DeliveryMode.NON_PERSISTENT);
            producer.send(session.createTextMessage("a"));
            producer.setDeliveryMode(DeliveryMode.PERSISTENT);
            producer.send(session.createTextMessage("b"));
            MessageConsumer consumer = session.createConsumer(queue);
            same(DeliveryMode.NON_PERSISTENT, consumer.receive(WAIT).getJMSDeliveryMode());
            same(DeliveryMode.PERSISTENT, consumer.receive(WAIT).getJMSDeliveryMode());
        });
    }

    private void properties() throws Exception {
        auto((session, queue) -> {
            TextMessage message = session.createTextMessage("a");
            message.setStringProperty("JMSXGroupID", "g");
            message.setIntProperty("JMSXGroupSeq", 3);
            message.setFloatProperty("float", 0.5f);
            message.setByteProperty("byte", (byte) -1);
            message.setShortProperty("short", (short) 300);
            session.createProducer(queue).send(message);
            same(List.of("a"), take(session, queue,
                "JMSXGroupID = 'g' AND JMSXGroupSeq = 3 AND float = 0.5 AND byte = -1 AND short = 300 AND JMSTimestamp > 0", 1));
        });
    }

    /** Sends one after the other; what was not confirmed when a connection broke, the client sends again by itself. */
    private void produce(int count) throws Exception {
        try (Connection connection = connect(""); Session session = connection.createSession()) {
            MessageProducer producer = session.createProducer(session.createQueue(name));
            for (int number = 0; number < count; number++) {
                TextMessage message = session.createTextMessage("" + number);
                message.setIntProperty("number", number);
                producer.send(message);
                OUT.println("sent " + number);
            }
        }
    }

    private void consume(int count) throws Exception {
        try (Connection connection = connect(""); Session session = connection.createSession(Session.CLIENT_ACKNOWLEDGE)) {
            MessageConsumer consumer = session.createConsumer(session.createQueue(name), "number >= 0");
            java.util.Set<String> seen = new java.util.HashSet<>();
            while (seen.size() < count) {
                Message message = consumer.receive(WAIT);
                if (message == null) {
                    return;
                }
                OUT.println("got " + text(message) + (message.getJMSRedelivered() ? " again" : ""));
                try {
                    message.acknowledge();
                    seen.add(text(message));
                } catch (JMSException broken) {
                    OUT.println("not acknowledged " + text(message));
                }
            }
        }
    }
}
