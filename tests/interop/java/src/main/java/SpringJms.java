import jakarta.jms.ConnectionFactory;
import jakarta.jms.MessageListener;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.stream.IntStream;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.springframework.jms.connection.CachingConnectionFactory;
import org.springframework.jms.connection.JmsTransactionManager;
import org.springframework.jms.core.JmsTemplate;
import org.springframework.jms.listener.DefaultMessageListenerContainer;
import org.springframework.jms.listener.SimpleMessageListenerContainer;
import org.springframework.jms.listener.adapter.MessageListenerAdapter;
import org.springframework.transaction.support.TransactionTemplate;

/** Spring's JmsTemplate, listener containers and transaction manager, each with queues of its own: {@code spring.NAME}. */
public final class SpringJms {
    private static final long RECEIVE_MS = 20_000;
    private final ConnectionFactory factory;

    private SpringJms(ConnectionFactory factory) {
        this.factory = factory;
    }

    public static void main(String[] arguments) {
        JmsConnectionFactory qpid = new JmsConnectionFactory(System.getProperty("bulla.url"));
        CachingConnectionFactory caching = new CachingConnectionFactory(qpid);
        // A consumer that is kept open keeps what it has prefetched from the next one.
        caching.setCacheConsumers(false);
        SpringJms spring = new SpringJms(caching);
        Checks.check("JmsTemplate.convertAndSend-receiveAndConvert", spring::converts);
        Checks.check("JmsTemplate.receiveSelected", spring::selects);
        Checks.check("JmsTemplate.browse", spring::browses);
        Checks.check("JmsTemplate.qualityOfService", spring::qualityOfService);
        Checks.check("JmsTemplate.sendAndReceive", spring::asksAndAnswers);
        Checks.check("JmsTemplate.publish-subscribe", spring::publishes);
        Checks.check("DefaultMessageListenerContainer.concurrent", spring::sharesWork);
        Checks.check("DefaultMessageListenerContainer.transacted", spring::deliversAgain);
        Checks.check("DefaultMessageListenerContainer.durableSubscription", spring::keepsSubscription);
        Checks.check("SimpleMessageListenerContainer", spring::listens);
        Checks.check("JmsTransactionManager.commit-rollback", spring::commitsAndRollsBack);
        caching.destroy();
        System.exit(0);
    }

    private JmsTemplate template() {
        JmsTemplate template = new JmsTemplate(factory);
        template.setReceiveTimeout(RECEIVE_MS);
        return template;
    }

    private void converts() {
        Map<String, Object> map = Map.of("customer", "Zoë", "count", 3, "ratio", 0.25);
        for (Object body : List.of("naïve façade, 信封", map, "bytes")) {
            Object sent = body.equals("bytes") ? new byte[] {0, (byte) 255, 7} : body;
            template().convertAndSend("spring.convert", sent);
            Object got = template().receiveAndConvert("spring.convert");
            if (sent instanceof byte[] bytes) {
                Checks.equal(List.of(((byte[]) got).length, ((byte[]) got)[1]), List.of(bytes.length, bytes[1]));
            } else {
                Checks.equal(got, sent);
            }
        }
    }

    private void selects() {
        for (String colour : List.of("red", "green", "red")) {
            template().convertAndSend("spring.select", colour, message -> {
                message.setStringProperty("colour", colour);
                return message;
            });
        }
        Checks.equal(template().receiveSelectedAndConvert("spring.select", "colour = 'green'"), "green");
        Checks.equal(template().receiveAndConvert("spring.select"), "red");
        Checks.equal(template().receiveAndConvert("spring.select"), "red");
    }

    private void browses() {
        for (String body : List.of("a", "b", "c")) {
            template().convertAndSend("spring.browse", body);
        }
        Integer seen = template().browse("spring.browse", (session, browser) -> Collections.list(browser.getEnumeration()).size());
        Checks.equal(seen, 3);
        Checks.equal(template().receiveAndConvert("spring.browse"), "a");
    }

    private void qualityOfService() throws Exception {
        JmsTemplate urgent = template();
        urgent.setExplicitQosEnabled(true);
        urgent.setPriority(9);
        urgent.setDeliveryPersistent(true);
        urgent.setTimeToLive(3_600_000);
        template().convertAndSend("spring.qos", "usual");
        urgent.convertAndSend("spring.qos", "urgent");
        TextMessage first = (TextMessage) template().receive("spring.qos");
        Checks.equal(List.of(first.getText(), first.getJMSPriority()), List.of("urgent", 9));
        Checks.equal(first.getJMSExpiration() > 0, true);
        Checks.equal(template().receiveAndConvert("spring.qos"), "usual");
    }

    private void asksAndAnswers() throws Exception {
        DefaultMessageListenerContainer server = container("spring.ask", new MessageListenerAdapter(new Object() {
            @SuppressWarnings("unused")
            public String handleMessage(String asked) {
                return asked.toUpperCase();
            }
        }));
        for (String asked : List.of("one", "two")) {
            TextMessage answer = (TextMessage) template().sendAndReceive("spring.ask", session -> session.createTextMessage(asked));
            Checks.equal(answer.getText(), asked.toUpperCase());
        }
        server.shutdown();
    }

    private void publishes() throws Exception {
        ConcurrentLinkedQueue<String> one = new ConcurrentLinkedQueue<>(), other = new ConcurrentLinkedQueue<>();
        DefaultMessageListenerContainer[] subscribers = {subscriber(one, null), subscriber(other, null)};
        JmsTemplate publisher = template();
        publisher.setPubSubDomain(true);
        publisher.convertAndSend("spring/topic", "news");
        Checks.until("both subscribers have it", () -> one.size() == 1 && other.size() == 1);
        for (DefaultMessageListenerContainer subscriber : subscribers) {
            subscriber.shutdown();
        }
    }

    private void keepsSubscription() throws Exception {
        ConcurrentLinkedQueue<String> got = new ConcurrentLinkedQueue<>();
        DefaultMessageListenerContainer subscriber = subscriber(got, "spring");
        subscriber.shutdown();
        JmsTemplate publisher = template();
        publisher.setPubSubDomain(true);
        publisher.convertAndSend("spring/topic", "while away");
        subscriber = subscriber(got, "spring");
        Checks.until("what was published meanwhile comes", () -> got.size() == 1);
        subscriber.shutdown();
    }

    private DefaultMessageListenerContainer subscriber(ConcurrentLinkedQueue<String> got, String durable) throws InterruptedException {
        DefaultMessageListenerContainer container = new DefaultMessageListenerContainer();
        container.setConnectionFactory(new JmsConnectionFactory(System.getProperty("bulla.url")));
        container.setDestinationName("spring/topic");
        container.setPubSubDomain(true);
        if (durable != null) {
            container.setSubscriptionDurable(true);
            container.setClientId(durable);
            container.setDurableSubscriptionName(durable);
        }
        container.setMessageListener((MessageListener) message -> got.add(text(message)));
        return start(container);
    }

    private void sharesWork() throws Exception {
        ConcurrentHashMap<String, Integer> got = new ConcurrentHashMap<>();
        DefaultMessageListenerContainer container = new DefaultMessageListenerContainer();
        container.setConnectionFactory(factory);
        container.setDestinationName("spring.concurrent");
        container.setConcurrentConsumers(4);
        container.setMessageListener((MessageListener) message -> got.merge(text(message), 1, Integer::sum));
        start(container);
        IntStream.range(0, 200).forEach(number -> template().convertAndSend("spring.concurrent", "message " + number));
        Checks.until("all have come", () -> got.size() == 200);
        container.shutdown();
        Checks.equal(got.values().stream().mapToInt(Integer::intValue).sum(), 200);
    }

    private void deliversAgain() throws Exception {
        ConcurrentLinkedQueue<List<Object>> seen = new ConcurrentLinkedQueue<>();
        DefaultMessageListenerContainer container = new DefaultMessageListenerContainer();
        container.setConnectionFactory(factory);
        container.setDestinationName("spring.again");
        container.setSessionTransacted(true);
        container.setErrorHandler(error -> {});
        container.setMessageListener((MessageListener) message -> {
            try {
                seen.add(List.of(text(message), message.getJMSRedelivered(), message.getIntProperty("JMSXDeliveryCount")));
            } catch (jakarta.jms.JMSException error) {
                throw new IllegalStateException(error);
            }
            if (seen.size() == 1) {
                throw new IllegalStateException("not this time");
            }
        });
        start(container);
        template().convertAndSend("spring.again", "again");
        Checks.until("it came twice", () -> seen.size() >= 2);
        container.shutdown();
        Checks.equal(List.copyOf(seen), List.of(List.of("again", false, 1), List.of("again", true, 2)));
    }

    private void listens() throws Exception {
        ConcurrentLinkedQueue<String> got = new ConcurrentLinkedQueue<>();
        SimpleMessageListenerContainer container = new SimpleMessageListenerContainer();
        container.setConnectionFactory(factory);
        container.setDestinationName("spring.simple");
        container.setMessageListener((MessageListener) message -> got.add(text(message)));
        container.afterPropertiesSet();
        container.start();
        template().convertAndSend("spring.simple", "heard");
        Checks.until("it is heard", () -> got.contains("heard"));
        container.shutdown();
    }

    private void commitsAndRollsBack() {
        TransactionTemplate unit = new TransactionTemplate(new JmsTransactionManager(factory));
        JmsTemplate template = template();
        template.setSessionTransacted(true);
        unit.executeWithoutResult(status -> {
            template.convertAndSend("spring.unit", "rolled back");
            status.setRollbackOnly();
        });
        unit.executeWithoutResult(status -> {
            template.convertAndSend("spring.unit", "one");
            template.convertAndSend("spring.unit", "two");
        });
        unit.executeWithoutResult(status -> {
            Checks.equal(template.receiveAndConvert("spring.unit"), "one");
            status.setRollbackOnly();
        });
        Checks.equal(template().receiveAndConvert("spring.unit"), "one");
        Checks.equal(template().receiveAndConvert("spring.unit"), "two");
    }

    private DefaultMessageListenerContainer container(String queue, Object listener) throws InterruptedException {
        DefaultMessageListenerContainer container = new DefaultMessageListenerContainer();
        container.setConnectionFactory(factory);
        container.setDestinationName(queue);
        container.setSessionAcknowledgeMode(Session.CLIENT_ACKNOWLEDGE);
        container.setMessageListener(listener);
        return start(container);
    }

    private static DefaultMessageListenerContainer start(DefaultMessageListenerContainer container) throws InterruptedException {
        // A refused subscription is tried for ever otherwise.
        container.setBackOff(new org.springframework.util.backoff.FixedBackOff(200, 5));
        container.afterPropertiesSet();
        container.start();
        Checks.until("the container listens", () -> container.getActiveConsumerCount() > 0 && container.isRegisteredWithDestination());
        return container;
    }

    private static String text(jakarta.jms.Message message) {
        try {
            return ((TextMessage) message).getText();
        } catch (jakarta.jms.JMSException error) {
            throw new IllegalStateException(error);
        }
    }
}
