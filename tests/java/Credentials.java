import com.basho.riak.client.core.RiakNode;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Base64;

/** The proof of the user `clients`: its certificate where it has one, else its password. */
final class Credentials {
    /** The password of the store in memory that holds the key of the certificate. */
    private static final String KEY_PASSWORD = "in-memory";

    private Credentials() {}

    /** Lets a client log in with the proof, as this user. */
    static void add(RiakNode.Builder node, String user) throws Exception {
        KeyStore trusted = emptyStore();
        trusted.setCertificateEntry("authority", certificate("LARDER_CA"));
        if (System.getenv("LARDER_CERT") == null) {
            node.withAuth(user, "Test1234", trusted);
            return;
        }
        KeyStore keys = emptyStore();
        Certificate[] chain = {certificate("LARDER_CERT")};
        keys.setKeyEntry("client", key("LARDER_KEY"), KEY_PASSWORD.toCharArray(), chain);
        node.withAuth(user, "", trusted, keys, KEY_PASSWORD);
    }

    private static KeyStore emptyStore() throws Exception {
        KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null, null);
        return store;
    }

    private static Certificate certificate(String variable) throws Exception {
        try (InputStream file = Files.newInputStream(Path.of(System.getenv(variable)))) {
            return CertificateFactory.getInstance("X.509").generateCertificate(file);
        }
    }

    /** The key of a file in PKCS #8. */
    private static PrivateKey key(String variable) throws Exception {
        String text = Files.readString(Path.of(System.getenv(variable)));
        byte[] der = Base64.getMimeDecoder().decode(text.replaceAll("-----[A-Z ]+-----", ""));
        return KeyFactory.getInstance("EC").generatePrivate(new PKCS8EncodedKeySpec(der));
    }
}
