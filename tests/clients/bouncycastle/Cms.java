import java.io.FileReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.PrivateKey;
import java.security.Security;
import java.util.Collection;
import org.bouncycastle.asn1.cms.ContentInfo;
import org.bouncycastle.asn1.pkcs.PrivateKeyInfo;
import org.bouncycastle.cert.X509CertificateHolder;
import org.bouncycastle.cert.jcajce.JcaX509ContentVerifierProviderBuilder;
import org.bouncycastle.cms.CMSAuthEnvelopedData;
import org.bouncycastle.cms.CMSEnvelopedData;
import org.bouncycastle.cms.CMSSignedData;
import org.bouncycastle.cms.KeyTransRecipientInformation;
import org.bouncycastle.cms.Recipient;
import org.bouncycastle.cms.RecipientInformation;
import org.bouncycastle.cms.RecipientInformationStore;
import org.bouncycastle.cms.SignerInformation;
import org.bouncycastle.cms.jcajce.JcaSimpleSignerInfoVerifierBuilder;
import org.bouncycastle.cms.jcajce.JceKeyAgreeAuthEnvelopedRecipient;
import org.bouncycastle.cms.jcajce.JceKeyAgreeEnvelopedRecipient;
import org.bouncycastle.cms.jcajce.JceKeyTransAuthEnvelopedRecipient;
import org.bouncycastle.cms.jcajce.JceKeyTransEnvelopedRecipient;
import org.bouncycastle.jce.provider.BouncyCastleProvider;
import org.bouncycastle.openssl.PEMParser;
import org.bouncycastle.openssl.jcajce.JcaPEMKeyConverter;
import org.bouncycastle.util.Store;

/** Opens sealed messages: Open (MESSAGE.der CA.pem RECIPIENT.pem RECIPIENT.key PAYLOAD)…; payloads are written to files. */
public class Open {
    public static void main(String[] files) throws Exception {
        Security.addProvider(new BouncyCastleProvider());
        for (int at = 0; at < files.length; at += 5) {
            byte[] der = Files.readAllBytes(Path.of(files[at]));
            Files.write(Path.of(files[at + 4]), open(der, certificate(files[at + 1]), files[at + 2], files[at + 3]));
        }
    }

    static byte[] open(byte[] der, X509CertificateHolder authority, String certificate, String key) throws Exception {
        String type = ContentInfo.getInstance(der).getContentType().getId();
        if (type.equals("1.2.840.113549.1.7.2")) {
            return verify(new CMSSignedData(der), authority);
        }
        boolean authenticated = !type.equals("1.2.840.113549.1.7.3");
        RecipientInformationStore recipients =
            authenticated ? new CMSAuthEnvelopedData(der).getRecipientInfos() : new CMSEnvelopedData(der).getRecipientInfos();
        byte[] content = decrypt(recipients, certificate(certificate), key(key), authenticated);
        boolean signed = content.length > 0 && content[0] == 0x30; // a payload of the tests is no SEQUENCE
        return signed ? verify(new CMSSignedData(content), authority) : content;
    }

    static byte[] decrypt(RecipientInformationStore store, X509CertificateHolder own, PrivateKey key, boolean authenticated)
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
            } else {
                by = authenticated
                    ? new JceKeyAgreeAuthEnvelopedRecipient(key).setProvider("BC")
                    : new JceKeyAgreeEnvelopedRecipient(key).setProvider("BC");
            }
            return recipient.getContent(by);
        }
        throw new IllegalArgumentException("not a recipient");
    }

    static byte[] verify(CMSSignedData signed, X509CertificateHolder authority) throws Exception {
        Store<X509CertificateHolder> certificates = signed.getCertificates();
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
