/*
 * Functions of OpenSSL that the archive refers to from its entry points for OpenSSL's types, which are linked in
 * together with those that we call, and never called themselves. Should one of them be, it stops the program here
 * instead of computing something with whatever libcrypto is around.
 */
#define ABSENT(name)         \
    void name(void);         \
    void name(void)          \
    {                        \
        __builtin_trap();    \
    }

ABSENT(BN_num_bits)
ABSENT(BN_bn2lebinpad)
ABSENT(BN_bin2bn)
ABSENT(ECDSA_SIG_get0)
