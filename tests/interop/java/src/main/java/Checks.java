import java.time.Duration;
import java.util.function.BooleanSupplier;

/** What the checks of a library share: a line for each, {@code pass NAME} or {@code fail NAME WHY}, and waiting until something is so. */
final class Checks {
    private static final Duration DEADLINE = Duration.ofSeconds(30);

    interface Check {
        void run() throws Exception;
    }

    static void check(String name, Check check) {
        try {
            check.run();
            System.out.println("pass " + name);
        } catch (Exception | AssertionError error) {
            Throwable cause = error;
            while (cause.getCause() != null) {
                cause = cause.getCause();
            }
            System.out.println("fail " + name + " " + String.valueOf(cause).replaceAll("\\s+", " "));
        }
    }

    static void equal(Object found, Object expected) {
        if (!expected.equals(found)) {
            throw new AssertionError("found " + found + ", expected " + expected);
        }
    }

    static void until(String what, BooleanSupplier condition) throws InterruptedException {
        long end = System.nanoTime() + DEADLINE.toNanos();
        while (!condition.getAsBoolean()) {
            if (System.nanoTime() > end) {
                throw new AssertionError("still not so: " + what);
            }
            Thread.sleep(10);
        }
    }

    private Checks() {}
}
