import java.io.FileReader;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.Key;
import java.security.KeyPair;
import java.security.KeyPairGenerator;
import java.security.PrivateKey;
import java.security.Security;
import java.security.cert.X509Certificate;
import java.security.interfaces.ECPublicKey;
import java.util.Collection;
import javax.crypto.Cipher;
import org.bouncycastle.asn1.ASN1ObjectIdentifier;
import org.bouncycastle.asn1.ASN1OctetString;
import org.bouncycastle.asn1.ASN1Sequence;
import org.bouncycastle.asn1.cms.ContentInfo;
import org.bouncycastle.asn1.nist.NISTObjectIdentifiers;
import org.bouncycastle.asn1.pkcs.PKCSObjectIdentifiers;
import org.bouncycastle.asn1.pkcs.PrivateKeyInfo;
import org.bouncycastle.asn1.pkcs.RSAESOAEPparams;
import org.bouncycastle.asn1.x509.AlgorithmIdentifier;
import org.bouncycastle.cert.X509CertificateHolder;
import org.bouncycastle.cert.jcajce.JcaX509CertificateConverter;
import org.bouncycastle.cert.jcajce.JcaX509ContentVerifierProviderBuilder;
import org.bouncycastle.cms.CMSAlgorithm;
import org.bouncycastle.cms.CMSAuthEnvelopedData;
import org.bouncycastle.cms.CMSAuthEnvelopedDataGenerator;
import org.bouncycastle.cms.CMSEnvelopedData;
import org.bouncycastle.cms.CMSEnvelopedDataGenerator;
import org.bouncycastle.cms.CMSException;
import org.bouncycastle.cms.CMSProcessableByteArray;
import org.bouncycastle.cms.CMSSignedData;
import org.bouncycastle.cms.CMSSignedDataGenerator;
import org.bouncycastle.cms.KEMRecipientInformation;
import org.bouncycastle.cms.KeyTransRecipientInformation;
import org.bouncycastle.cms.Recipient;
import org.bouncycastle.cms.RecipientInfoGenerator;
import org.bouncycastle.cms.RecipientInformation;
import org.bouncycastle.cms.RecipientInformationStore;
import org.bouncycastle.cms.RecipientOperator;
import org.bouncycastle.cms.SignerInformation;
import org.bouncycastle.cms.jcajce.JcaSimpleSignerInfoGeneratorBuilder;
import org.bouncycastle.cms.jcajce.JcaSimpleSignerInfoVerifierBuilder;
import org.bouncycastle.cms.jcajce.JceCMSContentEncryptorBuilder;
import org.bouncycastle.cms.jcajce.JceKEMEnvelopedRecipient;
import org.bouncycastle.cms.jcajce.JceKEMRecipient;
import org.bouncycastle.cms.jcajce.JceKEMRecipientInfoGenerator;
import org.bouncycastle.cms.jcajce.JceKeyAgreeAuthEnvelopedRecipient;
import org.bouncycastle.cms.jcajce.JceKeyAgreeEnvelopedRecipient;
import org.bouncycastle.cms.jcajce.JceKeyAgreeRecipientInfoGenerator;
import org.bouncycastle.cms.jcajce.JceKeyTransAuthEnvelopedRecipient;
import org.bouncycastle.cms.jcajce.JceKeyTransEnvelopedRecipient;
import org.bouncycastle.cms.jcajce.JceKeyTransRecipientInfoGenerator;
import org.bouncycastle.jcajce.io.CipherInputStream;
import org.bouncycastle.jce.provider.BouncyCastleProvider;
import org.bouncycastle.openssl.PEMParser;
import org.bouncycastle.openssl.jcajce.JcaPEMKeyConverter;
import org.bouncycastle.operator.DefaultDigestAlgorithmIdentifierFinder;
import org.bouncycastle.operator.InputAEADDecryptor;
import org.bouncycastle.operator.OutputAEADEncryptor;
import org.bouncycastle.operator.OutputEncryptor;
import org.bouncycastle.util.Store;

/**
 * Opens and makes CMS messages, many at once because a Java machine takes its time to start. Arguments, as often as
 * wanted:
 *
 * <pre>
 * open    MESSAGE CA.pem RECIPIENT.pem RECIPIENT.key OUT   the payload
 * sign    PAYLOAD SIGNER.pem SIGNER.key ALGORITHM OUT      ALGORITHM as SHA256withRSA or SHA384withML-DSA-65
 * encrypt PAYLOAD RECIPIENT.pem - CIPHER OUT               CIPHER as AES256 or AES128CBC
 * </pre>
 *
 * What fails is said on standard error, and its OUT is not written; the exit status is then 1.
 *
 * A message that shares its signature has a container that this library doesn't know. Its root is verified, and it is
 * written as it is, for others to look at the path.
 */
public class Cms {
    static final String SIGNED = "1.2.840.113549.1.7.2";
    static final String ENVELOPED = "1.2.840.113549.1.7.3";
    static final String BATCH_SIGNED = "2.25.162349314179033964728001606925398197666.2.1";
    static final int ARGUMENTS = 6;

    public static void main(String[] arguments) throws Exception {
        Security.addProvider(new BouncyCastleProvider());
        boolean failed = false;
        for (int at = 0; at < arguments.length; at += ARGUMENTS) {
            String out = arguments[at + 5];
            try {
                byte[] in = Files.readAllBytes(Path.of(arguments[at + 1]));
                byte[] made = done(arguments[at], in, arguments[at + 2], arguments[at + 3], arguments[at + 4]);
                Files.write(Path.of(out), made);
            } catch (Exception cause) {
                System.err.println(out + ": " + cause);
                failed = true;
            }
        }
        System.exit(failed ? 1 : 0);
    }

    static byte[] done(String what, byte[] in, String one, String two, String three) throws Exception {
        return switch (what) {
            case "open" -> open(in, certificate(one), two, three);
            case "sign" -> sign(in, certificate(one), key(two), three);
            case "encrypt" -> encrypt(in, certificate(one), three);
            default -> throw new IllegalArgumentException(what);
        };
    }

    static byte[] open(byte[] der, X509CertificateHolder authority, String certificate, String key) throws Exception {
        String type = ContentInfo.getInstance(der).getContentType().getId();
        if (type.equals(SIGNED) || type.equals(BATCH_SIGNED)) {
            return prove(der, authority);
        }
        boolean authenticated = !type.equals(ENVELOPED);
        RecipientInformationStore recipients =
            authenticated
                ? new CMSAuthEnvelopedData(der).getRecipientInfos()
                : new CMSEnvelopedData(der).getRecipientInfos();
        byte[] content = decrypt(recipients, certificate(certificate), key(key), authenticated);
        boolean signed = content.length > 0 && content[0] == 0x30; // a payload of the tests is no SEQUENCE
        return signed ? prove(content, authority) : content;
    }

    static byte[] decrypt(
        RecipientInformationStore store, X509CertificateHolder own, PrivateKey key, boolean authenticated)
        throws Exception {
        for (RecipientInformation recipient : store.getRecipients()) {
            if (!recipient.getRID().match(own)) {
                continue;
            }
            Recipient by;
            if (recipient instanceof KeyTransRecipientInformation) {
                by = authenticated
                    ? new JceKeyTransAuthEnvelopedRecipient(key).setProvider("BC")
                    : new JceKeyTransEnvelopedRecipient(key).setProvider("BC");
            } else if (recipient instanceof KEMRecipientInformation) {
                by = authenticated
                    ? new KemAuthEnvelopedRecipient(key).setProvider("BC")
                    : new JceKEMEnvelopedRecipient(key).setProvider("BC");
            } else {
                by = authenticated
                    ? new JceKeyAgreeAuthEnvelopedRecipient(key).setProvider("BC")
                    : new JceKeyAgreeEnvelopedRecipient(key).setProvider("BC");
            }
            return recipient.getContent(by);
        }
        throw new IllegalArgumentException("not a recipient");
    }

    /** What the library has for the other kinds of recipients: authenticated attributes count in the tag. */
    static class KemAuthEnvelopedRecipient extends JceKEMRecipient {
        KemAuthEnvelopedRecipient(PrivateKey key) {
            super(key);
        }

        @Override
        public RecipientOperator getRecipientOperator(
            AlgorithmIdentifier kem, AlgorithmIdentifier content, byte[] wrapped)
            throws CMSException {
            Key secret = extractSecretKey(kem, content, wrapped);
            Cipher cipher = contentHelper.createContentCipher(secret, content);
            return new RecipientOperator(new InputAEADDecryptor() {
                @Override
                public AlgorithmIdentifier getAlgorithmIdentifier() {
                    return content;
                }

                @Override
                public InputStream getInputStream(InputStream in) {
                    return new CipherInputStream(in, cipher);
                }

                @Override
                public OutputStream getAADStream() {
                    return new OutputStream() {
                        @Override
                        public void write(int octet) {
                            cipher.updateAAD(new byte[] {(byte) octet});
                        }
                    };
                }

                @Override
                public byte[] getMAC() {
                    return null; // the cipher reads it behind the ciphertext
                }
            });
        }
    }

    /** The payload of a signed message; of one that shares its signature all of it, its root verified. */
    static byte[] prove(byte[] der, X509CertificateHolder authority) throws Exception {
        ContentInfo container = ContentInfo.getInstance(der);
        if (!container.getContentType().getId().equals(BATCH_SIGNED)) {
            return verify(new CMSSignedData(der), authority);
        }
        ASN1Sequence batch = ASN1Sequence.getInstance(container.getContent());
        byte[] root = ASN1OctetString.getInstance(batch.getObjectAt(batch.size() - 1)).getOctets();
        verify(new CMSSignedData(root), authority);
        return der;
    }

    static byte[] verify(CMSSignedData signed, X509CertificateHolder authority) throws Exception {
        Store<X509CertificateHolder> certificates = signed.getCertificates();
        if (signed.getSignerInfos().size() == 0) {
            throw new IllegalArgumentException("unsigned");
        }
        for (SignerInformation signer : signed.getSignerInfos().getSigners()) {
            Collection<X509CertificateHolder> found = certificates.getMatches(signer.getSID());
            X509CertificateHolder certificate = found.iterator().next();
            boolean good = signer.verify(new JcaSimpleSignerInfoVerifierBuilder().setProvider("BC").build(certificate));
            boolean trusted = certificate.isSignatureValid(
                new JcaX509ContentVerifierProviderBuilder().setProvider("BC").build(authority));
            if (!good || !trusted) {
                throw new IllegalArgumentException(good ? "untrusted" : "tampered");
            }
        }
        return (byte[]) signed.getSignedContent().getContent();
    }

    static byte[] sign(byte[] payload, X509CertificateHolder signer, PrivateKey key, String algorithm)
        throws Exception {
        CMSSignedDataGenerator generator = new CMSSignedDataGenerator();
        generator.setDefiniteLengthEncoding(true);
        JcaSimpleSignerInfoGeneratorBuilder builder = new JcaSimpleSignerInfoGeneratorBuilder().setProvider("BC");
        if (algorithm.contains("ML-DSA")) {
            // The signature has no digest of its own; that of the content is SHA-512 unless it is said.
            String[] words = algorithm.split("with");
            builder.setContentDigest(new DefaultDigestAlgorithmIdentifierFinder().find(words[0]));
            algorithm = words[1];
        }
        generator.addSignerInfoGenerator(builder.build(algorithm, key, signer));
        generator.addCertificate(signer);
        return generator.generate(new CMSProcessableByteArray(payload), true).toASN1Structure().getEncoded("DER");
    }

    static byte[] encrypt(byte[] payload, X509CertificateHolder holder, String name) throws Exception {
        X509Certificate certificate = new JcaX509CertificateConverter().setProvider("BC").getCertificate(holder);
        boolean aes256 = name.startsWith("AES256");
        ASN1ObjectIdentifier wrap =
            aes256 ? NISTObjectIdentifiers.id_aes256_wrap : NISTObjectIdentifiers.id_aes128_wrap;
        RecipientInfoGenerator recipient = recipient(certificate, wrap);
        if (name.endsWith("CBC")) {
            CMSEnvelopedDataGenerator generator = new CMSEnvelopedDataGenerator();
            generator.addRecipientInfoGenerator(recipient);
            OutputEncryptor by = encryptor(aes256 ? CMSAlgorithm.AES256_CBC : CMSAlgorithm.AES128_CBC);
            return generator.generate(new CMSProcessableByteArray(payload), by).toASN1Structure().getEncoded("DER");
        }
        CMSAuthEnvelopedDataGenerator generator = new CMSAuthEnvelopedDataGenerator();
        generator.addRecipientInfoGenerator(recipient);
        ASN1ObjectIdentifier cipher = aes256 ? CMSAlgorithm.AES256_GCM : CMSAlgorithm.AES128_GCM;
        OutputAEADEncryptor by = (OutputAEADEncryptor) encryptor(cipher);
        return generator.generate(new CMSProcessableByteArray(payload), by).toASN1Structure().getEncoded("DER");
    }

    static OutputEncryptor encryptor(ASN1ObjectIdentifier cipher) throws Exception {
        return new JceCMSContentEncryptorBuilder(cipher).setProvider("BC").build();
    }

    /** The library's defaults are v1.5 for RSA, SHA-1 for EC and KDF3 for ML-KEM: none of these opens here. */
    static RecipientInfoGenerator recipient(X509Certificate certificate, ASN1ObjectIdentifier wrap) throws Exception {
        if (certificate.getPublicKey().getAlgorithm().equals("RSA")) {
            AlgorithmIdentifier digest = new AlgorithmIdentifier(NISTObjectIdentifiers.id_sha256);
            AlgorithmIdentifier mask = new AlgorithmIdentifier(PKCSObjectIdentifiers.id_mgf1, digest);
            RSAESOAEPparams parameters = new RSAESOAEPparams(digest, mask, RSAESOAEPparams.DEFAULT_P_SOURCE_ALGORITHM);
            AlgorithmIdentifier oaep = new AlgorithmIdentifier(PKCSObjectIdentifiers.id_RSAES_OAEP, parameters);
            return new JceKeyTransRecipientInfoGenerator(certificate, oaep).setProvider("BC");
        }
        if (certificate.getPublicKey() instanceof ECPublicKey key) {
            KeyPairGenerator pairs = KeyPairGenerator.getInstance("EC", "BC");
            pairs.initialize(key.getParams());
            KeyPair ephemeral = pairs.generateKeyPair();
            return new JceKeyAgreeRecipientInfoGenerator(
                CMSAlgorithm.ECDH_SHA256KDF, ephemeral.getPrivate(), ephemeral.getPublic(), wrap)
                .addRecipient(certificate).setProvider("BC");
        }
        return new JceKEMRecipientInfoGenerator(certificate, wrap)
            .setKDF(new AlgorithmIdentifier(PKCSObjectIdentifiers.id_alg_hkdf_with_sha256)).setProvider("BC");
    }

    static X509CertificateHolder certificate(String file) throws Exception {
        try (PEMParser parser = new PEMParser(new FileReader(file))) {
            for (Object found = parser.readObject(); found != null; found = parser.readObject()) {
                if (found instanceof X509CertificateHolder holder) {
                    return holder;
                }
            }
        }
        throw new IllegalArgumentException("no certificate in " + file);
    }

    static PrivateKey key(String file) throws Exception {
        try (PEMParser parser = new PEMParser(new FileReader(file))) {
            for (Object found = parser.readObject(); found != null; found = parser.readObject()) {
                if (found instanceof PrivateKeyInfo info) {
                    return new JcaPEMKeyConverter().setProvider("BC").getPrivateKey(info);
                }
            }
        }
        throw new IllegalArgumentException("no key in " + file);
    }
}
