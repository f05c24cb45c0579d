import java.util.List;
import java.util.Map;
import org.apache.camel.CamelContext;
import org.apache.camel.Exchange;
import org.apache.camel.ProducerTemplate;
import org.apache.camel.builder.RouteBuilder;
import org.apache.camel.component.amqp.AMQPComponent;
import org.apache.camel.component.mock.MockEndpoint;
import org.apache.camel.impl.DefaultCamelContext;
import org.apache.qpid.jms.JmsConnectionFactory;

/** Routes of Apache Camel over its AMQP component, each with queues of its own: {@code camel.NAME}. */
public final class CamelAmqp {
    private static final long WAIT_MS = 30_000;
    private final CamelContext context;
    private final ProducerTemplate producer;

    private CamelAmqp(CamelContext context) {
        this.context = context;
        this.producer = context.createProducerTemplate();
    }

    public static void main(String[] arguments) throws Exception {
        CamelContext context = new DefaultCamelContext();
        context.addComponent("amqp", new AMQPComponent(new JmsConnectionFactory(System.getProperty("bulla.url"))));
        context.start();
        CamelAmqp camel = new CamelAmqp(context);
        Checks.check("InOnly-route", camel::routes);
        Checks.check("headers", camel::keepsHeaders);
        Checks.check("InOut-temporary-reply-queue", () -> camel.asks("camel.ask", ""));
        Checks.check("InOut-fixed-reply-queue", () -> camel.asks("camel.fixed", "&replyTo=camel.answers&replyToType=Exclusive"));
        Checks.check("selector", camel::selects);
        Checks.check("transacted-redelivery", camel::deliversAgain);
        Checks.check("concurrentConsumers", camel::sharesWork);
        Checks.check("topic", camel::publishes);
        context.stop();
        System.exit(0);
    }

    private void route(RouteBuilder route) throws Exception {
        context.addRoutes(route);
    }

    private MockEndpoint mock(String name, int count) {
        MockEndpoint mock = context.getEndpoint("mock:" + name, MockEndpoint.class);
        mock.expectedMessageCount(count);
        mock.setResultWaitTime(WAIT_MS);
        return mock;
    }

    private void routes() throws Exception {
        MockEndpoint mock = mock("route", 20);
        route(new RouteBuilder() {
            @Override
            public void configure() {
                from("direct:route").to("amqp:queue:camel.first");
                from("amqp:queue:camel.first").to("amqp:queue:camel.second");
                from("amqp:queue:camel.second").to("mock:route");
            }
        });
        for (int number = 0; number < 20; number++) {
            producer.sendBody("direct:route", "message " + number);
        }
        mock.assertIsSatisfied();
        Checks.equal(mock.getExchanges().get(19).getMessage().getBody(String.class), "message 19");
    }

    private void keepsHeaders() throws Exception {
        MockEndpoint mock = mock("headers", 1);
        route(new RouteBuilder() {
            @Override
            public void configure() {
                from("amqp:queue:camel.headers").to("mock:headers");
            }
        });
        Map<String, Object> headers = Map.of("colour", "grün", "number", 42, "flag", true, "JMSCorrelationID", "c-7", "JMSPriority", 7);
        producer.sendBodyAndHeaders("amqp:queue:camel.headers?preserveMessageQos=true", Map.of("a", 1), headers);
        mock.assertIsSatisfied();
        Exchange got = mock.getExchanges().get(0);
        headers.forEach((name, value) -> Checks.equal(got.getMessage().getHeader(name), value));
        Checks.equal(got.getMessage().getBody(Map.class), Map.of("a", 1));
    }

    private void asks(String queue, String options) throws Exception {
        route(new RouteBuilder() {
            @Override
            public void configure() {
                from("amqp:queue:" + queue).transform(body().prepend("you said ").convertToString());
            }
        });
        for (String asked : List.of("one", "two")) {
            Object answer = producer.requestBody("amqp:queue:" + queue + "?requestTimeout=20000" + options, asked);
            Checks.equal(answer, "you said " + asked);
        }
    }

    private void selects() throws Exception {
        MockEndpoint red = mock("red", 1), other = mock("other", 2);
        for (String colour : List.of("red", "green", "blue")) {
            producer.sendBodyAndHeader("amqp:queue:camel.select", colour, "colour", colour);
        }
        route(new RouteBuilder() {
            @Override
            public void configure() {
                from("amqp:queue:camel.select?selector=RAW(colour = 'red')").to("mock:red");
                from("amqp:queue:camel.select?selector=RAW(colour <> 'red')").to("mock:other");
            }
        });
        red.assertIsSatisfied();
        other.assertIsSatisfied();
    }

    private void deliversAgain() throws Exception {
        MockEndpoint mock = mock("again", 1);
        route(new RouteBuilder() {
            @Override
            public void configure() {
                from("amqp:queue:camel.again?transacted=true&lazyCreateTransactionManager=false")
                        .process(exchange -> {
                            if (!exchange.getMessage().getHeader("JMSRedelivered", Boolean.class)) {
                                throw new IllegalStateException("not this time");
                            }
                        })
                        .to("mock:again");
            }
        });
        producer.sendBody("amqp:queue:camel.again", "again");
        mock.assertIsSatisfied();
        Checks.equal(mock.getExchanges().get(0).getMessage().getHeader("JMSXDeliveryCount", Integer.class), 2);
    }

    private void sharesWork() throws Exception {
        MockEndpoint mock = mock("concurrent", 200);
        route(new RouteBuilder() {
            @Override
            public void configure() {
                from("amqp:queue:camel.concurrent?concurrentConsumers=4").to("mock:concurrent");
            }
        });
        for (int number = 0; number < 200; number++) {
            producer.sendBody("amqp:queue:camel.concurrent", number);
        }
        mock.assertIsSatisfied();
    }

    private void publishes() throws Exception {
        MockEndpoint one = mock("one", 1), two = mock("two", 1);
        route(new RouteBuilder() {
            @Override
            public void configure() {
                from("amqp:topic:camel/topic?testConnectionOnStartup=true").to("mock:one");
                from("amqp:topic:camel/topic?testConnectionOnStartup=true").to("mock:two");
            }
        });
        producer.sendBody("amqp:topic:camel/topic", "news");
        one.assertIsSatisfied();
        two.assertIsSatisfied();
    }
}
