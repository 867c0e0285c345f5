import com.linecorp.decaton.processor.DecatonProcessor;
import com.linecorp.decaton.processor.TaskMetadata;
import com.linecorp.decaton.processor.runtime.DecatonTask;
import com.linecorp.decaton.processor.runtime.ProcessorProperties;
import com.linecorp.decaton.processor.runtime.ProcessorsBuilder;
import com.linecorp.decaton.processor.runtime.Property;
import com.linecorp.decaton.processor.runtime.StaticPropertySupplier;
import com.linecorp.decaton.processor.runtime.SubscriptionBuilder;
import com.linecorp.decaton.processor.runtime.TaskExtractor;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;

/** One run of LINE Decaton: seconds from the first record begun to the last one ended, as JSON. */
public final class DecatonTable {
    public static void main(String[] arguments) throws Exception {
        int atOnce = Integer.parseInt(arguments[4]);
        int msBelow = Integer.parseInt(arguments[6]);
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", arguments[2]);
        settings.put("client.id", arguments[2]);
        settings.put("auto.offset.reset", "earliest");
        CountDownLatch left = new CountDownLatch(Integer.parseInt(arguments[5]));
        AtomicLong beganAt = new AtomicLong();
        ThreadLocal<Random> random = ThreadLocal.withInitial(Random::new);
        TaskExtractor<byte[]> extractor =
                record -> new DecatonTask<>(TaskMetadata.builder().build(), record.value(), record.value());
        DecatonProcessor<byte[]> processor = (context, task) -> {
            beganAt.compareAndSet(0, System.nanoTime());
            Thread.sleep(random.get().nextInt(msBelow));
            left.countDown();
        };
        SubscriptionBuilder.newBuilder("bench")
                .processorsBuilder(ProcessorsBuilder.consuming(arguments[1], extractor).thenProcess(processor))
                .consumerConfig(settings)
                .addProperties(StaticPropertySupplier.of(
                        Property.ofStatic(ProcessorProperties.CONFIG_PARTITION_CONCURRENCY, atOnce),
                        Property.ofStatic(ProcessorProperties.CONFIG_MAX_PENDING_RECORDS, 10_000)))
                .buildAndStart();
        left.await();
        double seconds = (System.nanoTime() - beganAt.get()) / 1e9;
        System.out.println("{\"seconds\": " + seconds + "}");
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
