/*
 * A PKCS#11 module that passes every call on to another one, and fails on request: tests play a token that is pulled
 * out, slow, wrong or crashing with it. Built with: cc -shared -fPIC $(pkg-config --cflags p11-kit-1) shim.c
 *
 * Environment:
 *   BULLA_SHIM_MODULE   the module that does the work
 *   BULLA_SHIM_CONTROL  a file that is read at each call; each line is one of
 *     removed           the token is not there
 *     slow N            signing, decrypting, deriving and decapsulating take N milliseconds more
 *     pin               every PIN is wrong
 *     error N           these end with code N
 *     passing N         the next of these ends with code N; the line is taken out first
 *     faulty            one bit of each signature, each decrypted block and each secret is wrong
 *     picky             decapsulating a ciphertext that ends with four zeros fails
 *     crash             the process aborts in the next such call; the line is taken out first
 *     lost              every session is closed at the next such call; the line is taken out first
 *     oaep              CKM_RSA_PKCS_OAEP with SHA-256 works (SoftHSM2 2.6 refuses it)
 *   BULLA_SHIM_LOG      a file to which a line is added at each C_Login
 *   BULLA_SHIM_OLD      set: functions of PKCS#11 3.2 are left out, where the module has them
 */
#include <dlfcn.h>
#include <p11-kit/pkcs11.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINE_BYTES_MAX 128
#define SESSIONS_MAX 256
#define MODULUS_BYTES_MAX 512
#define SIGNATURE_BYTES_MAX 8192
#define HASH_BYTES 32

/* p11-kit's header ends before PKCS#11 3.0. In 3.2 the list goes on with 24 functions of 3.0, and 12 of its own. */
#define FUNCTIONS_OF_3_0 24
#define FUNCTIONS_OF_3_2 12

typedef CK_RV (*decapsulate_key_function)(CK_SESSION_HANDLE, CK_MECHANISM_PTR, CK_OBJECT_HANDLE, CK_ATTRIBUTE_PTR,
                                          CK_ULONG, CK_BYTE_PTR, CK_ULONG, CK_OBJECT_HANDLE_PTR);

struct list_3_2 {
    CK_FUNCTION_LIST first;
    void (*of_3_0[FUNCTIONS_OF_3_0])(void);
    void (*encapsulate_key)(void);
    decapsulate_key_function decapsulate_key;
    void (*rest[FUNCTIONS_OF_3_2 - 2])(void);
};

struct interface {
    CK_UTF8CHAR_PTR name;
    void *list;
    CK_FLAGS flags;
};

typedef CK_RV (*get_interface_function)(CK_UTF8CHAR_PTR, CK_VERSION *, struct interface **, CK_FLAGS);

static CK_FUNCTION_LIST *real;
static struct list_3_2 *real_3_2;
static struct list_3_2 ours;
static struct interface our_interface;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static CK_SESSION_HANDLE oaep_sessions[SESSIONS_MAX]; /* 0 is never a session */

/* Whether a line begins with the word; its number goes to `number`. */
static int asked(const char *word, unsigned long *number)
{
    const char *path = getenv("BULLA_SHIM_CONTROL");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[LINE_BYTES_MAX], found[LINE_BYTES_MAX];
    unsigned long value;
    int yes = 0;

    if (!file)
        return 0;
    while (!yes && fgets(line, sizeof line, file)) {
        value = 0;
        if (sscanf(line, "%127s %lu", found, &value) >= 1 && strcmp(found, word) == 0) {
            yes = 1;
            if (number)
                *number = value;
        }
    }
    fclose(file);
    return yes;
}

/* As `asked`, once: the whole file is taken away. */
static int asked_once(const char *word, unsigned long *number)
{
    int yes;

    pthread_mutex_lock(&lock);
    yes = asked(word, number);
    if (yes)
        unlink(getenv("BULLA_SHIM_CONTROL"));
    pthread_mutex_unlock(&lock);
    return yes;
}

/* What the control file has in store for a call that uses a key. */
static CK_RV before_use(void)
{
    unsigned long number = 0;

    if (asked_once("crash", NULL))
        abort();
    if (asked("removed", NULL))
        return CKR_DEVICE_REMOVED;
    if (asked("slow", &number))
        usleep((useconds_t)(number * 1000));
    if (asked("error", &number) || asked_once("passing", &number))
        return (CK_RV)number;
    if (asked_once("lost", NULL)) {
        CK_SLOT_ID slots[16];
        CK_ULONG count = 16, at;
        if (real->C_GetSlotList(CK_TRUE, slots, &count) == CKR_OK)
            for (at = 0; at < count; at++)
                real->C_CloseAllSessions(slots[at]);
        return CKR_SESSION_HANDLE_INVALID;
    }
    return CKR_OK;
}

static void spoil(CK_BYTE_PTR out, CK_ULONG len)
{
    if (out && len > 0 && asked("faulty", NULL))
        out[len - 1] ^= 1;
}

static int set_oaep(CK_SESSION_HANDLE from, CK_SESSION_HANDLE to)
{
    int at, done = 0;

    pthread_mutex_lock(&lock);
    for (at = 0; at < SESSIONS_MAX && !done; at++)
        if (oaep_sessions[at] == from) {
            oaep_sessions[at] = to;
            done = 1;
        }
    pthread_mutex_unlock(&lock);
    return done;
}

static int is_oaep(CK_SESSION_HANDLE session)
{
    return set_oaep(session, session);
}

static CK_RV sha256(CK_SESSION_HANDLE session, CK_BYTE *in, CK_ULONG len, CK_BYTE *out)
{
    CK_MECHANISM mechanism = {CKM_SHA256, NULL, 0};
    CK_ULONG out_len = HASH_BYTES;
    CK_RV rv = real->C_DigestInit(session, &mechanism);

    return rv == CKR_OK ? real->C_Digest(session, in, len, out, &out_len) : rv;
}

/* MGF1 (RFC 8017, B.2.1), xored into `block`. */
static CK_RV unmask(CK_SESSION_HANDLE session, CK_BYTE *seed, CK_ULONG seed_len, CK_BYTE *block, CK_ULONG len)
{
    CK_BYTE input[MODULUS_BYTES_MAX + 4], mask[HASH_BYTES];
    CK_ULONG at;

    memcpy(input, seed, seed_len);
    for (at = 0; at < len; at++) {
        if (at % HASH_BYTES == 0) {
            CK_ULONG counter = at / HASH_BYTES;
            CK_RV rv;
            input[seed_len] = input[seed_len + 1] = 0;
            input[seed_len + 2] = (CK_BYTE)(counter >> 8);
            input[seed_len + 3] = (CK_BYTE)counter;
            rv = sha256(session, input, seed_len + 4, mask);
            if (rv != CKR_OK)
                return rv;
        }
        block[at] ^= mask[at % HASH_BYTES];
    }
    return CKR_OK;
}

/* RFC 8017, 7.1.2, steps 2 and 3, for tests: nothing here is in constant time. */
static CK_RV decrypt_oaep(CK_SESSION_HANDLE session, CK_BYTE_PTR in, CK_ULONG in_len, CK_BYTE_PTR out, CK_ULONG *out_len)
{
    CK_BYTE raw[MODULUS_BYTES_MAX], label[HASH_BYTES];
    CK_ULONG len = sizeof raw, at;
    CK_RV rv;

    if (!out) {
        *out_len = MODULUS_BYTES_MAX;
        return CKR_OK;
    }
    set_oaep(session, 0);
    rv = real->C_Decrypt(session, in, in_len, raw, &len);
    if (rv != CKR_OK)
        return rv;
    if (len < 2 * HASH_BYTES + 2)
        return CKR_ENCRYPTED_DATA_LEN_RANGE;
    spoil(raw, len);
    rv = unmask(session, raw + 1 + HASH_BYTES, len - 1 - HASH_BYTES, raw + 1, HASH_BYTES);
    if (rv == CKR_OK)
        rv = unmask(session, raw + 1, HASH_BYTES, raw + 1 + HASH_BYTES, len - 1 - HASH_BYTES);
    if (rv == CKR_OK)
        rv = sha256(session, (CK_BYTE *)"", 0, label);
    if (rv != CKR_OK)
        return rv;
    for (at = 1 + 2 * HASH_BYTES; at < len && raw[at] == 0; at++)
        ;
    if (raw[0] != 0 || memcmp(raw + 1 + HASH_BYTES, label, HASH_BYTES) != 0 || at == len || raw[at] != 1)
        return CKR_ENCRYPTED_DATA_INVALID;
    len -= at + 1;
    if (len > *out_len)
        return CKR_BUFFER_TOO_SMALL;
    memcpy(out, raw + at + 1, len);
    *out_len = len;
    return CKR_OK;
}

static CK_RV get_slot_list(CK_BBOOL present, CK_SLOT_ID_PTR slots, CK_ULONG_PTR count)
{
    if (asked("removed", NULL)) {
        *count = 0;
        return CKR_OK;
    }
    return real->C_GetSlotList(present, slots, count);
}

static CK_RV get_token_info(CK_SLOT_ID slot, CK_TOKEN_INFO_PTR info)
{
    return asked("removed", NULL) ? CKR_TOKEN_NOT_PRESENT : real->C_GetTokenInfo(slot, info);
}

static CK_RV open_session(CK_SLOT_ID slot, CK_FLAGS flags, void *application, CK_NOTIFY notify, CK_SESSION_HANDLE *session)
{
    if (asked("removed", NULL))
        return CKR_TOKEN_NOT_PRESENT;
    return real->C_OpenSession(slot, flags, application, notify, session);
}

static CK_RV login(CK_SESSION_HANDLE session, CK_USER_TYPE user, CK_UTF8CHAR_PTR pin, CK_ULONG pin_len)
{
    const char *path = getenv("BULLA_SHIM_LOG");
    FILE *file = path ? fopen(path, "a") : NULL;

    if (file) {
        fputs("C_Login\n", file);
        fclose(file);
    }
    return asked("pin", NULL) ? CKR_PIN_INCORRECT : real->C_Login(session, user, pin, pin_len);
}

static CK_RV sign(CK_SESSION_HANDLE session, CK_BYTE_PTR in, CK_ULONG in_len, CK_BYTE_PTR out, CK_ULONG_PTR out_len)
{
    CK_BYTE sink[SIGNATURE_BYTES_MAX];
    CK_ULONG sink_len = sizeof sink;
    CK_RV rv = before_use();

    if (rv != CKR_OK) {
        real->C_Sign(session, in, in_len, sink, &sink_len); /* an error ends the operation */
        return rv;
    }
    rv = real->C_Sign(session, in, in_len, out, out_len);
    if (rv == CKR_OK)
        spoil(out, *out_len);
    return rv;
}

static CK_RV decrypt_init(CK_SESSION_HANDLE session, CK_MECHANISM_PTR mechanism, CK_OBJECT_HANDLE key)
{
    CK_MECHANISM plain = {CKM_RSA_X_509, NULL, 0};
    struct ck_rsa_pkcs_oaep_params *parameters = mechanism->pParameter;
    CK_RV rv;

    if (mechanism->mechanism != CKM_RSA_PKCS_OAEP || parameters->hashAlg != CKM_SHA256 || !asked("oaep", NULL))
        return real->C_DecryptInit(session, mechanism, key);
    rv = real->C_DecryptInit(session, &plain, key);
    if (rv == CKR_OK && !set_oaep(0, session))
        return CKR_HOST_MEMORY;
    return rv;
}

static CK_RV decrypt(CK_SESSION_HANDLE session, CK_BYTE_PTR in, CK_ULONG in_len, CK_BYTE_PTR out, CK_ULONG_PTR out_len)
{
    CK_BYTE sink[MODULUS_BYTES_MAX];
    CK_ULONG sink_len = sizeof sink;
    CK_RV rv = before_use();

    if (rv != CKR_OK) {
        set_oaep(session, 0);
        real->C_Decrypt(session, in, in_len, sink, &sink_len);
        return rv;
    }
    if (is_oaep(session))
        return decrypt_oaep(session, in, in_len, out, out_len);
    rv = real->C_Decrypt(session, in, in_len, out, out_len);
    if (rv == CKR_OK)
        spoil(out, *out_len);
    return rv;
}

static CK_RV derive_key(CK_SESSION_HANDLE session, CK_MECHANISM_PTR mechanism, CK_OBJECT_HANDLE base, CK_ATTRIBUTE_PTR template,
                        CK_ULONG count, CK_OBJECT_HANDLE_PTR key)
{
    CK_RV rv = before_use();

    return rv == CKR_OK ? real->C_DeriveKey(session, mechanism, base, template, count, key) : rv;
}

static CK_RV decapsulate_key(CK_SESSION_HANDLE session, CK_MECHANISM_PTR mechanism, CK_OBJECT_HANDLE private,
                             CK_ATTRIBUTE_PTR template, CK_ULONG count, CK_BYTE_PTR in, CK_ULONG in_len,
                             CK_OBJECT_HANDLE_PTR key)
{
    CK_RV rv = before_use();

    if (rv == CKR_OK && in_len >= 4 && memcmp(in + in_len - 4, "\0\0\0\0", 4) == 0 && asked("picky", NULL))
        rv = CKR_ENCRYPTED_DATA_INVALID;
    return rv == CKR_OK ? real_3_2->decapsulate_key(session, mechanism, private, template, count, in, in_len, key) : rv;
}

static CK_RV get_attribute_value(CK_SESSION_HANDLE session, CK_OBJECT_HANDLE object, CK_ATTRIBUTE_PTR template, CK_ULONG count)
{
    CK_RV rv = real->C_GetAttributeValue(session, object, template, count);
    CK_ULONG at;

    for (at = 0; rv == CKR_OK && at < count; at++)
        if (template[at].type == CKA_VALUE)
            spoil(template[at].pValue, template[at].ulValueLen);
    return rv;
}

CK_RV C_GetFunctionList(CK_FUNCTION_LIST_PTR_PTR list);

static void take_over(void)
{
    ours.first.C_GetFunctionList = C_GetFunctionList;
    ours.first.C_GetSlotList = get_slot_list;
    ours.first.C_GetTokenInfo = get_token_info;
    ours.first.C_OpenSession = open_session;
    ours.first.C_Login = login;
    ours.first.C_Sign = sign;
    ours.first.C_DecryptInit = decrypt_init;
    ours.first.C_Decrypt = decrypt;
    ours.first.C_DeriveKey = derive_key;
    ours.first.C_GetAttributeValue = get_attribute_value;
}

static void *function_of_module(const char *name)
{
    const char *path = getenv("BULLA_SHIM_MODULE");
    void *module = path ? dlopen(path, RTLD_NOW) : NULL;

    return module ? dlsym(module, name) : NULL;
}

CK_RV C_GetFunctionList(CK_FUNCTION_LIST_PTR_PTR list)
{
    CK_C_GetFunctionList get = (CK_C_GetFunctionList)function_of_module("C_GetFunctionList");
    CK_RV rv = get ? get(&real) : CKR_GENERAL_ERROR;

    if (rv != CKR_OK)
        return rv;
    ours.first = *real;
    take_over();
    *list = &ours.first;
    return CKR_OK;
}

/* The list of 3.2, where the module has one; otherwise none, and the caller goes on with C_GetFunctionList. */
CK_RV C_GetInterface(CK_UTF8CHAR_PTR name, CK_VERSION *version, struct interface **interface, CK_FLAGS flags)
{
    get_interface_function get = (get_interface_function)function_of_module("C_GetInterface");
    struct interface *found = NULL;
    CK_VERSION *has;

    *interface = NULL;
    if (!get || getenv("BULLA_SHIM_OLD") || get(name, version, &found, flags) != CKR_OK || !found)
        return CKR_OK;
    has = found->list;
    if (has->major != 3 || has->minor < 2)
        return CKR_OK;
    real_3_2 = found->list;
    real = &real_3_2->first;
    ours = *real_3_2;
    take_over();
    ours.decapsulate_key = decapsulate_key;
    our_interface = *found;
    our_interface.list = &ours;
    *interface = &our_interface;
    return CKR_OK;
}
