import com.basho.riak.client.api.RiakClient;
import com.basho.riak.client.api.commands.kv.FetchValue;
import com.basho.riak.client.api.commands.kv.MultiDelete;
import com.basho.riak.client.api.commands.kv.MultiFetch;
import com.basho.riak.client.api.commands.kv.StoreValue;
import com.basho.riak.client.core.RiakFuture;
import com.basho.riak.client.core.query.Location;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutionException;

/** Many calls at a time over a pool of connections. */
final class PoolTest {
    private static final int CALLS = 400;

    public static void main(String[] args) throws Exception {
        Larder.run(PoolTest.class);
    }

    private static Location place(int number) {
        return Larder.at("pool", "key " + number);
    }

    private static String value(int number) {
        return ("value " + number).repeat(number + 1);
    }

    static void eachCallGetsItsOwnAnswer(RiakClient unused) throws Exception {
        for (int connections : new int[] {1, 16, 0}) {
            RiakClient client = Larder.connect(connections);
            List<RiakFuture<StoreValue.Response, Location>> stores = new ArrayList<>();
            for (int number = 0; number < CALLS; number++) {
                StoreValue.Builder store = new StoreValue.Builder(Larder.object(value(number)));
                stores.add(client.executeAsync(store.withLocation(place(number)).build()));
            }
            for (RiakFuture<StoreValue.Response, Location> store : stores) {
                store.get();
            }
            List<RiakFuture<FetchValue.Response, Location>> fetches = new ArrayList<>();
            for (int number = 0; number < CALLS; number++) {
                fetches.add(client.executeAsync(new FetchValue.Builder(place(number)).build()));
            }
            for (int number = 0; number < CALLS; number++) {
                Larder.same(Larder.texts(fetches.get(number).get().getValues()), List.of(value(number)));
            }
            Larder.stop(client);
        }
    }

    static void manyAreFetchedAndDeletedAtOnce(RiakClient client) throws Exception {
        List<Location> places = new ArrayList<>();
        for (int number = 0; number < 50; number++) {
            places.add(Larder.at("multi", "key " + number));
            Larder.store(client, places.get(number), value(number));
        }
        MultiFetch fetch = new MultiFetch.Builder().addLocations(places).withMaxInFlight(8).build();
        int found = 0;
        for (RiakFuture<FetchValue.Response, Location> one : client.execute(fetch)) {
            int number = places.indexOf(one.getQueryInfo());
            Larder.same(Larder.texts(one.get().getValues()), List.of(value(number)));
            found += 1;
        }
        Larder.same(found, 50);
        for (RiakFuture<Void, Location> one :
                client.execute(new MultiDelete.Builder().addLocations(places).build())) {
            one.get();
        }
        for (RiakFuture<FetchValue.Response, Location> one : client.execute(fetch)) {
            Larder.check(one.get().isNotFound(), one.getQueryInfo() + " is found");
        }
    }

    static void refusalsAndAnswersDoNotMix(RiakClient unused) throws Exception {
        RiakClient client = Larder.connect(8);
        Larder.store(client, Larder.at("mixed", "k"), "v");
        List<RiakFuture<FetchValue.Response, Location>> fetches = new ArrayList<>();
        for (int number = 0; number < CALLS; number++) {
            Location at = Larder.at(number % 3 == 0 ? "nosuch" : "default", "mixed", number % 3 == 1 ? "k" : "missing");
            fetches.add(client.executeAsync(new FetchValue.Builder(at).build()));
        }
        for (int number = 0; number < CALLS; number++) {
            RiakFuture<FetchValue.Response, Location> fetch = fetches.get(number);
            String outcome;
            try {
                outcome = fetch.get().isNotFound() ? "not found" : Larder.texts(fetch.get().getValues()).get(0);
            } catch (ExecutionException refused) {
                outcome = refused.getCause().getMessage();
            }
            Larder.same(outcome, List.of("no_type", "v", "not found").get(number % 3));
        }
        Larder.stop(client);
    }
}
