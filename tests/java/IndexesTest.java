import com.basho.riak.client.api.RiakClient;
import com.basho.riak.client.api.commands.indexes.BinIndexQuery;
import com.basho.riak.client.api.commands.indexes.BucketIndexQuery;
import com.basho.riak.client.api.commands.indexes.IntIndexQuery;
import com.basho.riak.client.api.commands.indexes.KeyIndexQuery;
import com.basho.riak.client.api.commands.indexes.SecondaryIndexQuery;
import com.basho.riak.client.api.commands.kv.StoreValue;
import com.basho.riak.client.core.query.Location;
import com.basho.riak.client.core.query.Namespace;
import com.basho.riak.client.core.query.RiakObject;
import com.basho.riak.client.core.query.indexes.LongIntIndex;
import com.basho.riak.client.core.query.indexes.StringBinIndex;
import com.basho.riak.client.core.util.BinaryValue;
import java.util.ArrayList;
import java.util.List;

/** Secondary indexes: stored terms, equality and ranges, pages, the special indexes. */
final class IndexesTest {
    public static void main(String[] args) throws Exception {
        Larder.run(IndexesTest.class);
    }

    private static String key(int number) {
        return String.format("k%02d", number);
    }

    private static List<String> keys(int from, int to) {
        List<String> keys = new ArrayList<>();
        for (int number = from; number < to; number++) {
            keys.add(key(number));
        }
        return keys;
    }

    private static void fill(RiakClient client, Namespace bucket) throws Exception {
        for (int number = 0; number < 20; number++) {
            RiakObject object = Larder.object("" + number);
            object.getIndexes().getIndex(LongIntIndex.named("n")).add(number - 5L);
            object.getIndexes().getIndex(StringBinIndex.named("t")).add("t" + number % 3);
            Location at = new Location(bucket, key(number));
            client.execute(new StoreValue.Builder(object).withLocation(at).build());
        }
    }

    static void oneValueAndRanges(RiakClient client) throws Exception {
        for (Namespace bucket : List.of(new Namespace("java-range"), new Namespace("many", "java-range"))) {
            fill(client, bucket);
            IntIndexQuery range = new IntIndexQuery.Builder(bucket, "n", -2L, 1L).withKeyAndIndex(true).build();
            List<String> found = new ArrayList<>();
            List<Long> terms = new ArrayList<>();
            for (SecondaryIndexQuery.Response.Entry<Long> entry : client.execute(range).getEntries()) {
                found.add(entry.getRiakObjectLocation().getKeyAsString());
                terms.add(entry.getIndexKey());
            }
            Larder.same(found, keys(3, 7));
            Larder.same(terms, List.of(-2L, -1L, 0L, 1L));
            List<String> ones = new ArrayList<>();
            BinIndexQuery one = new BinIndexQuery.Builder(bucket, "t", "t1").build();
            client.execute(one).getEntries().forEach(entry -> ones.add(entry.getRiakObjectLocation().getKeyAsString()));
            Larder.same(ones, List.of("k01", "k04", "k07", "k10", "k13", "k16", "k19"));
        }
    }

    static void pagesGoOnWhereTheLastOneEnded(RiakClient client) throws Exception {
        Namespace bucket = new Namespace("java-pages");
        fill(client, bucket);
        List<String> found = new ArrayList<>();
        BinaryValue continuation = null;
        int pages = 0;
        do {
            IntIndexQuery.Builder query = new IntIndexQuery.Builder(bucket, "n", -5L, 14L);
            query.withMaxResults(8).withPaginationSort(true);
            if (continuation != null) {
                query.withContinuation(continuation);
            }
            IntIndexQuery.Response page = client.execute(query.build());
            page.getEntries().forEach(entry -> found.add(entry.getRiakObjectLocation().getKeyAsString()));
            continuation = page.hasContinuation() ? page.getContinuation() : null;
            pages += 1;
        } while (continuation != null);
        Larder.same(found, keys(0, 20));
        Larder.same(pages, 3);
    }

    static void specialIndexesShowKeys(RiakClient client) throws Exception {
        Namespace bucket = new Namespace("java-special");
        fill(client, bucket);
        List<String> found = new ArrayList<>();
        KeyIndexQuery some = new KeyIndexQuery.Builder(bucket, "k05", "k07").build();
        client.execute(some).getEntries().forEach(entry -> found.add(entry.getRiakObjectLocation().getKeyAsString()));
        Larder.same(found, keys(5, 8));
        found.clear();
        BucketIndexQuery all = new BucketIndexQuery.Builder(bucket).build();
        client.execute(all).getEntries().forEach(entry -> found.add(entry.getRiakObjectLocation().getKeyAsString()));
        Larder.same(found, keys(0, 20));
    }
}
