import com.basho.riak.client.api.RiakClient;
import com.basho.riak.client.api.annotations.RiakVClock;
import com.basho.riak.client.api.cap.ConflictResolver;
import com.basho.riak.client.api.cap.ConflictResolverFactory;
import com.basho.riak.client.api.cap.UnresolvedConflictException;
import com.basho.riak.client.api.cap.VClock;
import com.basho.riak.client.api.commands.kv.DeleteValue;
import com.basho.riak.client.api.commands.kv.FetchValue;
import com.basho.riak.client.api.commands.kv.StoreValue;
import com.basho.riak.client.api.commands.kv.UpdateValue;
import com.basho.riak.client.core.query.Location;
import com.basho.riak.client.core.query.RiakObject;
import com.basho.riak.client.core.query.indexes.LongIntIndex;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.TreeSet;

/** Siblings: seen, resolved by a class of the caller, written back with their context. */
final class SiblingsTest {
    /** A shopping cart that keeps its context. */
    public static final class Cart {
        @RiakVClock
        public VClock seen;

        public TreeSet<String> items = new TreeSet<>();

        static Cart of(String... items) {
            Cart cart = new Cart();
            cart.items.addAll(Arrays.asList(items));
            return cart;
        }
    }

    /** Keeps the items of all siblings. */
    private static final class Union implements ConflictResolver<Cart> {
        @Override
        public Cart resolve(List<Cart> siblings) {
            if (siblings.isEmpty()) {
                return null;
            }
            Cart all = siblings.get(0);
            siblings.forEach(one -> all.items.addAll(one.items));
            return all;
        }
    }

    /** A change that an update carries out on what it found. */
    private static final class Add extends UpdateValue.Update<Cart> {
        private final String item;

        Add(String item) {
            this.item = item;
        }

        @Override
        public Cart apply(Cart found) {
            Cart cart = found == null ? new Cart() : found;
            cart.items.add(item);
            return cart;
        }
    }

    /** A change that decides to store nothing. */
    private static final class Nothing extends UpdateValue.Update<Cart> {
        @Override
        public Cart apply(Cart found) {
            setModified(false);
            return found;
        }
    }

    public static void main(String[] args) throws Exception {
        ConflictResolverFactory.getInstance().registerConflictResolver(Cart.class, new Union());
        Larder.run(SiblingsTest.class);
    }

    private static Location place(String key) {
        return Larder.at("many", "siblings", key);
    }

    /** Stores these carts without a look at each other. */
    private static Location conflicting(RiakClient client, String key, Cart... carts) throws Exception {
        for (Cart cart : carts) {
            client.execute(new StoreValue.Builder(cart).withLocation(place(key)).build());
        }
        return place(key);
    }

    static void bothAreSeenWithTheirMetadata(RiakClient client) throws Exception {
        Location at = place("seen");
        for (long writer : new long[] {1, 2}) {
            RiakObject stored = Larder.object("value " + writer);
            stored.getUserMeta().put("writer", "" + writer);
            stored.getIndexes().getIndex(LongIntIndex.named("n")).add(writer);
            client.execute(new StoreValue.Builder(stored).withLocation(at).build());
        }
        List<RiakObject> siblings = new ArrayList<>(Larder.fetch(client, at).getValues());
        siblings.sort(Comparator.comparing(one -> one.getValue().toStringUtf8()));
        Larder.same(Larder.texts(siblings), List.of("value 1", "value 2"));
        for (int number : new int[] {0, 1}) {
            RiakObject one = siblings.get(number);
            Larder.same(one.getUserMeta().get("writer"), "" + (number + 1));
            LongIntIndex index = one.getIndexes().getIndex(LongIntIndex.named("n"));
            Larder.check(index.size() == 1 && index.hasValue(number + 1L), "index of another sibling: " + index);
        }
    }

    static void withoutAResolverTheConflictIsAnError(RiakClient client) throws Exception {
        Location at = place("unresolved");
        Larder.store(client, at, "a");
        Larder.store(client, at, "b");
        try {
            Larder.fetch(client, at).getValue(RiakObject.class);
        } catch (UnresolvedConflictException conflict) {
            Larder.same(conflict.getSiblings().size(), 2);
            return;
        }
        throw new AssertionError("a conflict was resolved by nobody");
    }

    static void aResolverMergesAndTheContextRemovesTheRest(RiakClient client) throws Exception {
        Location at = conflicting(client, "merge", Cart.of("milk"), Cart.of("tea"), Cart.of("milk", "salt"));
        FetchValue.Response found = Larder.fetch(client, at);
        Larder.same(found.getNumberOfValues(), 3);
        Cart merged = found.getValue(Cart.class);
        Larder.same(new ArrayList<>(merged.items), List.of("milk", "salt", "tea"));
        Larder.same(merged.seen, found.getVectorClock());
        client.execute(new StoreValue.Builder(merged).withLocation(at).build());
        FetchValue.Response again = Larder.fetch(client, at);
        Larder.same(again.getNumberOfValues(), 1);
        Larder.same(again.getValue(Cart.class).items, merged.items);
    }

    static void anUpdateResolvesAndWritesBack(RiakClient client) throws Exception {
        Location at = conflicting(client, "update", Cart.of("milk"), Cart.of("tea"));
        UpdateValue.Response updated = client.execute(new UpdateValue.Builder(at)
                .withUpdate(new Add("salt"))
                .withStoreOption(StoreValue.Option.RETURN_BODY, true)
                .build());
        Larder.check(updated.wasUpdated(), "it was not updated");
        Larder.same(new ArrayList<>(updated.getValue(Cart.class).items), List.of("milk", "salt", "tea"));
        Larder.same(Larder.fetch(client, at).getNumberOfValues(), 1);
        UpdateValue.Response unchanged =
                client.execute(new UpdateValue.Builder(at).withUpdate(new Nothing()).build());
        Larder.check(!unchanged.wasUpdated(), "it was updated");
    }

    static void updatesNeverConflict(RiakClient client) throws Exception {
        Location at = place("updates");
        for (int round = 0; round < 20; round++) {
            client.execute(new UpdateValue.Builder(at).withUpdate(new Add("item " + round)).build());
        }
        FetchValue.Response found = Larder.fetch(client, at);
        Larder.same(found.getNumberOfValues(), 1);
        Larder.same(found.getValue(Cart.class).items.size(), 20);
    }

    static void aStoreWithItsBodyShowsTheConflict(RiakClient client) throws Exception {
        Location at = conflicting(client, "shown", Cart.of("first"));
        StoreValue.Response shown = client.execute(new StoreValue.Builder(Cart.of("second"))
                .withLocation(at)
                .withOption(StoreValue.Option.RETURN_BODY, true)
                .build());
        Larder.same(shown.getNumberOfValues(), 2);
        Larder.same(new ArrayList<>(shown.getValue(Cart.class).items), List.of("first", "second"));
    }

    static void aWriterWithAnOldContextLeavesASibling(RiakClient client) throws Exception {
        Location at = place("old");
        Larder.store(client, at, "one");
        VClock seen = Larder.fetch(client, at).getVectorClock();
        for (String value : List.of("two", "three")) {
            StoreValue.Builder store = new StoreValue.Builder(Larder.object(value)).withLocation(at);
            client.execute(store.withVectorClock(seen).build());
        }
        Larder.same(Larder.texts(Larder.fetch(client, at).getValues()), List.of("three", "two"));
    }

    static void aDeleteRemovesWhatItsContextSaw(RiakClient client) throws Exception {
        Location at = conflicting(client, "delete", Cart.of("a"), Cart.of("b"));
        VClock seen = Larder.fetch(client, at).getVectorClock();
        conflicting(client, "delete", Cart.of("c"));
        client.execute(new DeleteValue.Builder(at).withVClock(seen).build());
        FetchValue.Response left = Larder.fetch(client, at);
        Larder.same(left.getNumberOfValues(), 1);
        Larder.same(new ArrayList<>(left.getValue(Cart.class).items), List.of("c"));
    }

    static void aBucketWithoutAllowMultKeepsOne(RiakClient client) throws Exception {
        Location at = Larder.at("single", "b", "k");
        Larder.store(client, at, "1");
        Larder.store(client, at, "2");
        Larder.same(Larder.texts(Larder.fetch(client, at).getValues()), List.of("2"));
    }
}
