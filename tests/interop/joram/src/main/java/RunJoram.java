import java.util.List;
import org.junit.runner.Description;
import org.junit.runner.JUnitCore;
import org.junit.runner.notification.Failure;
import org.junit.runner.notification.RunListener;

/** Runs the classes of JORAM's JMS tests that are named, and prints a line for each test: {@code pass NAME} or {@code fail NAME WHY}. */
public final class RunJoram {
    private static final String PACKAGE = "org.objectweb.jtests.jms.conform.";

    public static void main(String[] names) throws ClassNotFoundException {
        JUnitCore core = new JUnitCore();
        core.addListener(
                new RunListener() {
                    private String why;

                    @Override
                    public void testStarted(Description test) {
                        why = null;
                    }

                    @Override
                    public void testFailure(Failure failure) {
                        if (why == null) {
                            why = String.valueOf(failure.getException()).replaceAll("\\s+", " ");
                        }
                    }

                    @Override
                    public void testFinished(Description test) {
                        String name = test.getTestClass().getSimpleName() + "." + test.getMethodName();
                        System.out.println(why == null ? "pass " + name : "fail " + name + " " + why);
                    }
                });
        for (String name : List.of(names)) {
            core.run(Class.forName(PACKAGE + name));
        }
        System.exit(0);
    }
}
