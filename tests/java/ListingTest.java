import com.basho.riak.client.api.RiakClient;
import com.basho.riak.client.api.commands.buckets.ListBuckets;
import com.basho.riak.client.api.commands.kv.ListKeys;
import com.basho.riak.client.api.commands.kv.StoreValue;
import com.basho.riak.client.core.RiakFuture;
import com.basho.riak.client.core.query.Location;
import com.basho.riak.client.core.query.Namespace;
import com.basho.riak.client.core.util.BinaryValue;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.Deque;
import java.util.List;

/** Keys and buckets, listed whole and streamed. */
final class ListingTest {
    public static void main(String[] args) throws Exception {
        Larder.run(ListingTest.class);
    }

    private static List<String> keys(Iterable<Location> listed) {
        List<String> keys = new ArrayList<>();
        listed.forEach(one -> keys.add(one.getKey().toStringUtf8()));
        keys.sort(Comparator.naturalOrder());
        return keys;
    }

    private static List<String> buckets(Iterable<Namespace> listed) {
        List<String> buckets = new ArrayList<>();
        listed.forEach(one -> buckets.add(one.getBucketName().toStringUtf8()));
        buckets.sort(Comparator.naturalOrder());
        return buckets;
    }

    /** Stores keys, some at a time, and returns their names in order. */
    private static List<String> fill(RiakClient client, Namespace bucket, int count) throws Exception {
        List<String> names = new ArrayList<>();
        Deque<RiakFuture<StoreValue.Response, Location>> running = new ArrayDeque<>();
        for (int number = 0; number < count; number++) {
            String name = "key-" + number + " ü";
            names.add(name);
            Location at = new Location(bucket, BinaryValue.createFromUtf8(name));
            running.add(client.executeAsync(new StoreValue.Builder(Larder.object("v")).withLocation(at).build()));
            if (running.size() == 50) {
                running.remove().get();
            }
        }
        for (RiakFuture<StoreValue.Response, Location> one : running) {
            one.get();
        }
        names.sort(Comparator.naturalOrder());
        return names;
    }

    static void keysAreListedWholeAndStreamed(RiakClient client) throws Exception {
        for (Namespace bucket : List.of(new Namespace("listed"), new Namespace("many", "listed"))) {
            List<String> names = fill(client, bucket, 1500);
            Larder.delete(client, new Location(bucket, BinaryValue.createFromUtf8(names.remove(7))));
            ListKeys list = new ListKeys.Builder(bucket).withTimeout(10_000).build();
            Larder.same(keys(client.execute(list)), names);
            ListKeys.Response streamed = client.executeAsyncStreaming(list, 200).get();
            Larder.check(streamed.isStreaming(), "it is not streamed");
            Larder.same(keys(streamed), names);
        }
    }

    static void bucketsAreListedWholeAndStreamed(RiakClient client) throws Exception {
        Larder.store(client, new Location(new Namespace(BinaryValue.createFromUtf8("öne")), "k"), "v");
        Larder.store(client, Larder.at("many", "two", "k"), "v");
        List<String> inDefault = buckets(client.execute(new ListBuckets.Builder("default").build()));
        List<String> inMany = buckets(client.execute(new ListBuckets.Builder("many").build()));
        Larder.check(inDefault.contains("öne") && !inDefault.contains("two"), inDefault.toString());
        Larder.check(inMany.contains("two") && !inMany.contains("öne"), inMany.toString());
        ListBuckets many = new ListBuckets.Builder("many").build();
        Larder.same(buckets(client.executeAsyncStreaming(many, 200).get()), inMany);
    }

    static void anEmptyBucketHasNoKeys(RiakClient client) throws Exception {
        ListKeys list = new ListKeys.Builder(new Namespace("empty")).build();
        Larder.same(keys(client.execute(list)), List.of());
        Larder.same(keys(client.executeAsyncStreaming(list, 200).get()), List.of());
        Larder.same(buckets(client.execute(new ListBuckets.Builder("single").build())), List.of());
    }
}
