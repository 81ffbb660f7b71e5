import com.basho.riak.client.api.RiakClient;
import com.basho.riak.client.api.annotations.RiakIndex;
import com.basho.riak.client.api.annotations.RiakKey;
import com.basho.riak.client.api.annotations.RiakUsermeta;
import com.basho.riak.client.api.cap.Quorum;
import com.basho.riak.client.api.cap.VClock;
import com.basho.riak.client.api.commands.kv.DeleteValue;
import com.basho.riak.client.api.commands.kv.FetchValue;
import com.basho.riak.client.api.commands.kv.StoreValue;
import com.basho.riak.client.core.operations.PingOperation;
import com.basho.riak.client.core.query.Location;
import com.basho.riak.client.core.query.Namespace;
import com.basho.riak.client.core.query.RiakObject;
import com.basho.riak.client.core.query.indexes.LongIntIndex;
import com.basho.riak.client.core.query.indexes.StringBinIndex;
import com.basho.riak.client.core.query.links.RiakLink;
import com.basho.riak.client.core.util.BinaryValue;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;

/** Objects: store, fetch, delete, metadata, conditions. */
final class ObjectsTest {
    /** A value with annotations, which the client stores as JSON, indexes and metadata. */
    public static final class Person {
        @RiakKey
        public String key;

        @RiakIndex(name = "born")
        public Long born;

        @RiakUsermeta
        public Map<String, String> notes = new HashMap<>();

        public String name;
        public List<String> languages;
    }

    public static void main(String[] args) throws Exception {
        Larder.run(ObjectsTest.class);
    }

    static void itPings(RiakClient client) throws Exception {
        PingOperation ping = new PingOperation();
        client.getRiakCluster().execute(ping);
        ping.get(5, TimeUnit.SECONDS);
        Larder.check(ping.isSuccess(), "the ping fails");
    }

    static void annotatedValuesComeBack(RiakClient client) throws Exception {
        Person ada = new Person();
        ada.key = "ada";
        ada.name = "Ada ü";
        ada.born = 1815L;
        ada.languages = Arrays.asList("en", "fr");
        ada.notes.put("colour", "red");
        Namespace people = new Namespace("people");
        client.execute(new StoreValue.Builder(ada).withNamespace(people).build());
        Person got = Larder.fetch(client, new Location(people, "ada")).getValue(Person.class);
        Larder.same(Arrays.asList(got.name, got.born, got.languages), Arrays.asList(ada.name, 1815L, ada.languages));
        Larder.same(got.key, "ada");
        Larder.same(got.notes, ada.notes);
        RiakObject raw = Larder.fetch(client, new Location(people, "ada")).getValue(RiakObject.class);
        Larder.check(raw.getContentType().startsWith("application/json"), raw.getContentType());
    }

    static void bytesAndMetadataComeBack(RiakClient client) throws Exception {
        byte[] bytes = new byte[256_000];
        for (int at = 0; at < bytes.length; at++) {
            bytes[at] = (byte) at;
        }
        RiakObject stored = new RiakObject().setContentType("application/octet-stream").setCharset("latin-1");
        stored.setValue(BinaryValue.create(bytes));
        stored.getUserMeta().put("colour", "red");
        stored.getUserMeta().put("größe", "12 ½", StandardCharsets.UTF_8);
        stored.getIndexes().getIndex(LongIntIndex.named("age")).add(Arrays.asList(42L, -7L));
        stored.getIndexes().getIndex(StringBinIndex.named("name")).add("ada").add("lovelace");
        stored.getLinks().addLink(new RiakLink("other bucket", "c/d", "odd tag"));
        Location at = Larder.at("raw", "blob");
        long begun = System.currentTimeMillis();
        client.execute(new StoreValue.Builder(stored).withLocation(at).build());
        FetchValue.Response response = Larder.fetch(client, at);
        RiakObject got = response.getValue(RiakObject.class);
        Larder.check(Arrays.equals(got.getValue().getValue(), bytes), "the bytes differ");
        Larder.same(got.getContentType(), "application/octet-stream");
        Larder.same(got.getCharset(), "latin-1");
        Larder.same(got.getUserMeta().size(), 2);
        Larder.same(got.getUserMeta().get("colour"), "red");
        Larder.same(got.getUserMeta().get("größe", StandardCharsets.UTF_8), "12 ½");
        Larder.same(got.getIndexes().getIndex(LongIntIndex.named("age")).values(), Set.of(42L, -7L));
        Larder.same(got.getIndexes().getIndex(StringBinIndex.named("name")).values(), Set.of("ada", "lovelace"));
        Larder.same(got.getLinks().getLinks(), Set.of(new RiakLink("other bucket", "c/d", "odd tag")));
        Larder.check(got.getVTag() != null && !got.getVTag().isEmpty(), "no vtag");
        long age = got.getLastModified() - begun;
        Larder.check(age > -1000 && age < 60_000, "modified " + age + " ms after the store");
        Larder.check(response.getVectorClock().getBytes().length > 0, "no context");
    }

    static void bodiesMayBeLarge(RiakClient client) throws Exception {
        byte[] large = new byte[9 << 20];
        Arrays.fill(large, (byte) 'x');
        RiakObject stored = new RiakObject().setContentType("x/y").setValue(BinaryValue.create(large));
        client.execute(new StoreValue.Builder(stored).withLocation(Larder.at("sizes", "large")).build());
        RiakObject got = Larder.fetch(client, Larder.at("sizes", "large")).getValue(RiakObject.class);
        Larder.check(Arrays.equals(got.getValue().getValue(), large), "the bytes differ");
    }

    static void keysMayHaveAnyCharactersAndBytes(RiakClient client) throws Exception {
        Namespace odd = new Namespace("odd/bücket name", StandardCharsets.UTF_8);
        BinaryValue bytes = BinaryValue.create(new byte[] {0, -1, -2, '/'});
        Map<BinaryValue, String> values = new HashMap<>();
        values.put(bytes, "bytes");
        for (String key : List.of("a/b", "a b", "a+b", "grüße/日本 語", "100%", "?q=1", "#")) {
            values.put(BinaryValue.createFromUtf8(key), "value of " + key);
        }
        for (Map.Entry<BinaryValue, String> one : values.entrySet()) {
            Larder.store(client, new Location(odd, one.getKey()), one.getValue());
        }
        for (Map.Entry<BinaryValue, String> one : values.entrySet()) {
            FetchValue.Response got = Larder.fetch(client, new Location(odd, one.getKey()));
            Larder.same(Larder.texts(got.getValues()), List.of(one.getValue()));
        }
    }

    static void aMissingKeyGetsAName(RiakClient client) throws Exception {
        Namespace made = new Namespace("made");
        StoreValue command = new StoreValue.Builder(Larder.object("x")).withNamespace(made).build();
        StoreValue.Response stored = client.execute(command);
        Larder.check(stored.hasGeneratedKey(), "no key");
        FetchValue.Response got = Larder.fetch(client, new Location(made, stored.getGeneratedKey()));
        Larder.same(Larder.texts(got.getValues()), List.of("x"));
    }

    static void whatIsNotThereIsNotFound(RiakClient client) throws Exception {
        FetchValue.Response got = Larder.fetch(client, Larder.at("people", "nobody"));
        Larder.check(got.isNotFound() && !got.hasValues(), "found");
        Larder.same(got.getValue(RiakObject.class), null);
        Larder.delete(client, Larder.at("people", "nobody"));
    }

    static void aDeletedKeyShowsItsContextAlone(RiakClient client) throws Exception {
        Location at = Larder.at("deleted", "k");
        Larder.store(client, at, "one");
        VClock seen = Larder.fetch(client, at).getVectorClock();
        client.execute(new DeleteValue.Builder(at).withVClock(seen).build());
        Larder.check(Larder.fetch(client, at).isNotFound(), "found after the delete");
        FetchValue tombstone = new FetchValue.Builder(at).withOption(FetchValue.Option.DELETED_VCLOCK, true).build();
        FetchValue.Response gone = client.execute(tombstone);
        VClock context = gone.getVectorClock();
        Larder.check(context != null && !context.equals(seen), "the context of a tombstone");
        Larder.check(gone.getValues().stream().allMatch(RiakObject::isDeleted), "values of a tombstone");
        StoreValue.Builder again = new StoreValue.Builder(Larder.object("two")).withLocation(at);
        client.execute(again.withVectorClock(context).build());
        Larder.same(Larder.texts(Larder.fetch(client, at).getValues()), List.of("two"));
    }

    static void onlyTheFirstStoreWithIfNoneMatchSucceeds(RiakClient client) throws Exception {
        Location at = Larder.at("once", "k");
        for (String value : List.of("first", "second")) {
            StoreValue store = new StoreValue.Builder(Larder.object(value))
                    .withLocation(at)
                    .withOption(StoreValue.Option.IF_NONE_MATCH, true)
                    .build();
            if (value.equals("first")) {
                client.execute(store);
            } else {
                Larder.refused(client, store, "match_found");
            }
        }
        Larder.same(Larder.texts(Larder.fetch(client, at).getValues()), List.of("first"));
    }

    static void aStoreWithAnOldContextAndIfNotModifiedIsRefused(RiakClient client) throws Exception {
        Location at = Larder.at("checked", "k");
        Larder.store(client, at, "1");
        VClock first = Larder.fetch(client, at).getVectorClock();
        client.execute(ifNotModified(at, "2", first));
        Larder.refused(client, ifNotModified(at, "3", first), "modified");
        Larder.same(Larder.texts(Larder.fetch(client, at).getValues()), List.of("2"));
        StoreValue.Builder missing =
                new StoreValue.Builder(Larder.object("4")).withLocation(Larder.at("checked", "none"));
        Larder.refused(client, missing.withOption(StoreValue.Option.IF_NOT_MODIFIED, true).build(), "notfound");
    }

    private static StoreValue ifNotModified(Location at, String value, VClock seen) {
        return new StoreValue.Builder(Larder.object(value).setVClock(seen))
                .withLocation(at)
                .withOption(StoreValue.Option.IF_NOT_MODIFIED, true)
                .build();
    }

    static void anUnchangedObjectIsNotSentAgain(RiakClient client) throws Exception {
        Location at = Larder.at("modified", "k");
        Larder.store(client, at, "1");
        VClock seen = Larder.fetch(client, at).getVectorClock();
        FetchValue again = new FetchValue.Builder(at).withOption(FetchValue.Option.IF_MODIFIED, seen).build();
        FetchValue.Response same = client.execute(again);
        // The client shows an answer without contents as a deleted object.
        Larder.check(same.isUnchanged() && Larder.texts(same.getValues()).equals(List.of("")), "it is sent again");
        Larder.store(client, at, "2");
        FetchValue.Response other = client.execute(again);
        Larder.check(!other.isUnchanged(), "unchanged after a store");
        Larder.same(Larder.texts(other.getValues()), List.of("2"));
    }

    static void headsHaveMetadataWithoutAValue(RiakClient client) throws Exception {
        Location at = Larder.at("heads", "k");
        RiakObject stored = Larder.object("body");
        stored.getUserMeta().put("a", "b");
        StoreValue withBody = new StoreValue.Builder(stored)
                .withLocation(at)
                .withOption(StoreValue.Option.RETURN_BODY, true)
                .build();
        StoreValue.Response body = client.execute(withBody);
        Larder.same(Larder.texts(body.getValues()), List.of("body"));
        StoreValue withHead = new StoreValue.Builder(stored)
                .withLocation(at)
                .withVectorClock(body.getVectorClock())
                .withOption(StoreValue.Option.RETURN_HEAD, true)
                .build();
        StoreValue.Response fromStore = client.execute(withHead);
        FetchValue head = new FetchValue.Builder(at).withOption(FetchValue.Option.HEAD, true).build();
        FetchValue.Response fromFetch = client.execute(head);
        Larder.same(fromStore.getVectorClock(), fromFetch.getVectorClock());
        for (List<RiakObject> values : List.of(fromStore.getValues(), fromFetch.getValues())) {
            Larder.same(Larder.texts(values), List.of(""));
            Larder.same(values.get(0).getContentType(), "text/plain");
            Larder.same(values.get(0).getUserMeta().get("a"), "b");
        }
    }

    static void typesAreDifferentPlaces(RiakClient client) throws Exception {
        Larder.store(client, Larder.at("many", "same", "k"), "typed");
        Larder.store(client, Larder.at("same", "k"), "untyped");
        Larder.same(Larder.texts(Larder.fetch(client, Larder.at("many", "same", "k")).getValues()), List.of("typed"));
        Larder.same(Larder.texts(Larder.fetch(client, Larder.at("same", "k")).getValues()), List.of("untyped"));
    }

    static void quorumsAreAcceptedUpToTheCopies(RiakClient client) throws Exception {
        Location at = Larder.at("quorums", "k");
        client.execute(new StoreValue.Builder(Larder.object("1"))
                .withLocation(at)
                .withTimeout(5000)
                .withOption(StoreValue.Option.W, Quorum.allQuorum())
                .withOption(StoreValue.Option.DW, Quorum.oneQuorum())
                .withOption(StoreValue.Option.PW, new Quorum(1))
                .build());
        client.execute(new FetchValue.Builder(at)
                .withTimeout(5000)
                .withOption(FetchValue.Option.R, Quorum.quorumQuorum())
                .withOption(FetchValue.Option.PR, new Quorum(1))
                .withOption(FetchValue.Option.BASIC_QUORUM, true)
                .withOption(FetchValue.Option.NOTFOUND_OK, false)
                .build());
        FetchValue tooMany = new FetchValue.Builder(at).withOption(FetchValue.Option.R, new Quorum(4)).build();
        Larder.refused(client, tooMany, "{n_val_violation,3}");
        client.execute(new DeleteValue.Builder(at).withOption(DeleteValue.Option.W, Quorum.allQuorum()).build());
        Larder.check(Larder.fetch(client, at).isNotFound(), "found after the delete");
    }
}
