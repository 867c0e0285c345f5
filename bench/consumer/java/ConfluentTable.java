import io.confluent.parallelconsumer.ParallelConsumerOptions;
import io.confluent.parallelconsumer.ParallelConsumerOptions.ProcessingOrder;
import io.confluent.parallelconsumer.ParallelStreamProcessor;
import java.util.List;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** One run of Confluent's parallel consumer: seconds from the first record begun to the last one ended, as JSON. */
public final class ConfluentTable {
    public static void main(String[] arguments) throws Exception {
        int atOnce = Integer.parseInt(arguments[4]);
        int msBelow = Integer.parseInt(arguments[6]);
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", arguments[2]);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("max.poll.records", "10000");
        var consumer = new KafkaConsumer<byte[], byte[]>(
                settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        var options = ParallelConsumerOptions.<byte[], byte[]>builder()
                .ordering(ProcessingOrder.valueOf(arguments[3]))
                .maxConcurrency(atOnce)
                .consumer(consumer)
                .build();
        CountDownLatch left = new CountDownLatch(Integer.parseInt(arguments[5]));
        AtomicLong beganAt = new AtomicLong();
        var processor = ParallelStreamProcessor.createEosStreamProcessor(options);
        processor.subscribe(List.of(arguments[1]));
        ThreadLocal<Random> random = ThreadLocal.withInitial(Random::new);
        processor.poll(context -> {
            beganAt.compareAndSet(0, System.nanoTime());
            try {
                Thread.sleep(random.get().nextInt(msBelow));
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
            }
            left.countDown();
        });
        left.await();
        double seconds = (System.nanoTime() - beganAt.get()) / 1e9;
        System.out.println("{\"seconds\": " + seconds + "}");
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
