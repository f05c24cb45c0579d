//! The library of lanes: opening it, and its functions behind checked slices.
//!
//! Intel's Cryptography Primitives Library computes eight operations of one size at a time (`crypto_mb`,
//! headers `rsa.h` and `ec_nistp*.h`). A number is either big-endian bytes or little-endian words of 64 bits,
//! which the signatures here tell apart. The library is opened once a process and never closed.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::path::Path;

use crate::code_file::checked_code_file;

use super::limbs::{EC_LIMBS_MAX, LIMBS_MAX};

/// Operations in one call.
pub(super) const LANES: usize = 8;

/// Lanes' results, one nibble a lane, 0 is good (`status.h`).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Status(u32);

impl Status {
    pub(super) fn is_good(self, lane: usize) -> bool {
        (self.0 >> (4 * lane)) & 0xf == 0
    }
}

/// One thing for each lane.
pub(super) type Lanes<T> = [T; LANES];

#[repr(C)]
struct RsaMethod {
    _opaque: [u8; 0],
}

type In8 = *const [*const u8; LANES];
type Out8 = *const [*mut u8; LANES];
type In64 = *const [*const u64; LANES];
type Out64 = *const [*mut u64; LANES];

type RsaFn = unsafe extern "C" fn(In8, Out8, In64, In64, c_int, *const RsaMethod, *mut u8) -> u32;
type RsaPublicFn = unsafe extern "C" fn(In8, Out8, In64, c_int, *const RsaMethod, *mut u8) -> u32;
type RsaCrtFn = unsafe extern "C" fn(In8, Out8, In64, In64, In64, In64, In64, c_int, *const RsaMethod, *mut u8) -> u32;
type MethodFn = unsafe extern "C" fn(c_int) -> *const RsaMethod;
type BufferFn = unsafe extern "C" fn(*const RsaMethod) -> c_int;
type FeaturesFn = unsafe extern "C" fn() -> u64;
type ApplicableFn = unsafe extern "C" fn(u64) -> c_int;
type PublicKeyFn = unsafe extern "C" fn(Out64, Out64, Out64, In64, *mut u8) -> u32;
type EcdhFn = unsafe extern "C" fn(Out8, In64, In64, In64, In64, *mut u8) -> u32;
type VerifyFn = unsafe extern "C" fn(In8, In8, In8, In64, In64, In64, *mut u8) -> u32;

/// The feature that the lanes need, as the library itself sees the processor (`cpu_features.h`).
const FEATURE_AVX512_IFMA: u64 = 0x1_0000_0000;

/// The sizes of RSA that the library has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RsaSize {
    Bits1024,
    Bits2048,
    Bits3072,
    Bits4096,
}

impl RsaSize {
    pub(super) const ALL: [RsaSize; 4] = [RsaSize::Bits1024, RsaSize::Bits2048, RsaSize::Bits3072, RsaSize::Bits4096];

    pub(super) fn from_bits(bits: u32) -> Option<RsaSize> {
        RsaSize::ALL.into_iter().find(|size| size.bits() == bits)
    }

    pub(super) const fn bits(self) -> u32 {
        match self {
            RsaSize::Bits1024 => 1024,
            RsaSize::Bits2048 => 2048,
            RsaSize::Bits3072 => 3072,
            RsaSize::Bits4096 => 4096,
        }
    }

    pub(super) const fn bytes(self) -> usize {
        self.bits() as usize / 8
    }

    pub(super) const fn limbs(self) -> usize {
        self.bits() as usize / 64
    }

    const fn index(self) -> usize {
        self as usize
    }
}

/// The curves that the library has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum LaneCurve {
    P256,
    P384,
    P521,
}

impl LaneCurve {
    /// Bytes of a coordinate and of a scalar.
    pub(super) const fn bytes(self) -> usize {
        match self {
            LaneCurve::P256 => 32,
            LaneCurve::P384 => 48,
            LaneCurve::P521 => 66,
        }
    }

    pub(super) const fn limbs(self) -> usize {
        self.bytes().div_ceil(8)
    }

    const fn index(self) -> usize {
        self as usize
    }
}

/// Bytes of the longest scalar or coordinate.
pub(super) const EC_BYTES_MAX: usize = 66;
/// Bytes of the longest modulus.
pub(super) const RSA_BYTES_MAX: usize = 512;

/// A scalar or coordinate for each lane, in words.
pub(super) type Scalars = Lanes<[u64; EC_LIMBS_MAX]>;
/// A point for each lane in Jacobian coordinates: (X/Z², Y/Z³).
pub(super) struct Points {
    pub(super) x: Scalars,
    pub(super) y: Scalars,
    pub(super) z: Scalars,
}
/// A scalar or coordinate for each lane, big-endian, at the front of its array.
pub(super) type ScalarBytes = Lanes<[u8; EC_BYTES_MAX]>;
/// A number below the modulus for each lane, big-endian, at the front of its array.
pub(super) type Numbers = Lanes<[u8; RSA_BYTES_MAX]>;

struct Methods {
    public: *const RsaMethod,
    private: *const RsaMethod,
    crt: *const RsaMethod,
}

struct CurveFns {
    public_key: PublicKeyFn,
    ecdh: EcdhFn,
    verify: VerifyFn,
}

/// The open library.
pub(super) struct Library {
    rsa: [Methods; 4],
    rsa_public: RsaPublicFn,
    rsa_private: RsaFn,
    rsa_private_crt: RsaCrtFn,
    curves: [CurveFns; 3],
    scratch_bytes: usize,
}

// SAFETY: the pointers in it are to constant tables of the library, which is never closed.
unsafe impl Send for Library {}
// SAFETY: as above; nothing in it changes, and the library's functions keep no state of their own.
unsafe impl Sync for Library {}

/// The private halves of RSA keys with primes, in words: `p` is the greater prime, `iq` is q⁻¹ mod p.
pub(super) struct CrtKeys<'a> {
    pub(super) p: Lanes<&'a [u64]>,
    pub(super) q: Lanes<&'a [u64]>,
    pub(super) dp: Lanes<&'a [u64]>,
    pub(super) dq: Lanes<&'a [u64]>,
    pub(super) iq: Lanes<&'a [u64]>,
}

impl Library {
    /// Opens the shared object and asks it whether it can work on this processor.
    ///
    /// # Errors
    /// One lower-case line: it can't be loaded, lacks a function, or does not see the instructions it needs.
    pub(super) fn open(path: &Path) -> Result<Library, String> {
        let file = checked_code_file(path).map_err(|error| error.to_string())?;
        // SAFETY: the object is this program's own build of the library, which no other user may write; it has no
        // initialisers but the one that looks at the processor.
        let library = unsafe { libloading::Library::new(file) }.map_err(|error| one_line(&error.to_string()))?;
        // The functions must stay where they are until the process ends.
        let library: &'static libloading::Library = Box::leak(Box::new(library));
        macro_rules! function {
            ($name:expr) => {{
                // SAFETY: the type, which the place of this call says, is the one that the library's header declares.
                let found = unsafe { library.get($name) };
                *found.map_err(|error| one_line(&error.to_string()))?
            }};
        }
        let features: FeaturesFn = function!(b"mbx_get_cpu_features");
        let applicable: ApplicableFn = function!(b"mbx_is_crypto_mb_applicable");
        // SAFETY: both take and give plain numbers.
        let usable = unsafe {
            let features = features();
            features & FEATURE_AVX512_IFMA != 0 && applicable(features) != 0
        };
        if !usable {
            return Err(NO_IFMA.to_owned());
        }
        let (public, private, crt): (MethodFn, MethodFn, MethodFn) = (
            function!(b"mbx_RSA_pub65537_Method"),
            function!(b"mbx_RSA_private_Method"),
            function!(b"mbx_RSA_private_crt_Method"),
        );
        let buffer_size: BufferFn = function!(b"mbx_RSA_Method_BufSize");
        let mut scratch_bytes = 0;
        let mut methods = |size: RsaSize| -> Result<Methods, String> {
            let bits = size.bits() as c_int;
            // SAFETY: these look a size up in a constant table.
            let (public, private, crt) = unsafe { (public(bits), private(bits), crt(bits)) };
            for method in [public, private, crt] {
                if method.is_null() {
                    return Err(format!("the library of lanes has no RSA with {bits} bits"));
                }
                // SAFETY: `method` is one of the library's own, not null.
                scratch_bytes = scratch_bytes.max(usize::try_from(unsafe { buffer_size(method) }).unwrap_or(0));
            }
            Ok(Methods { public, private, crt })
        };
        let rsa = [
            methods(RsaSize::Bits1024)?,
            methods(RsaSize::Bits2048)?,
            methods(RsaSize::Bits3072)?,
            methods(RsaSize::Bits4096)?,
        ];
        macro_rules! curve {
            ($prefix:literal) => {
                CurveFns {
                    public_key: function!(concat!($prefix, "_ecpublic_key_mb8").as_bytes()),
                    ecdh: function!(concat!($prefix, "_ecdh_mb8").as_bytes()),
                    verify: function!(concat!($prefix, "_ecdsa_verify_mb8").as_bytes()),
                }
            };
        }
        Ok(Library {
            rsa,
            rsa_public: function!(b"mbx_rsa_public_mb8"),
            rsa_private: function!(b"mbx_rsa_private_mb8"),
            rsa_private_crt: function!(b"mbx_rsa_private_crt_mb8"),
            curves: [curve!("mbx_nistp256"), curve!("mbx_nistp384"), curve!("mbx_nistp521")],
            scratch_bytes,
        })
    }

    /// Memory for the RSA functions, enough for each of them.
    pub(super) fn scratch(&self) -> Scratch {
        Scratch(vec![Line([0; 64]); self.scratch_bytes.div_ceil(64) + 1].into_boxed_slice())
    }

    /// `to = from ^ 65537 mod n` in each lane; `from` is below `n`.
    pub(super) fn rsa_public(
        &self,
        size: RsaSize,
        from: &Numbers,
        to: &mut Numbers,
        n: &Lanes<&[u64]>,
        scratch: &mut Scratch,
    ) -> Status {
        let n = words(n, size.limbs());
        let (from, to) = (each(from), each_mut(to));
        // SAFETY: all arrays have eight pointers, `from` and `to` to 512 bytes (the size is 512 at most), `n` to
        // `size.limbs()` words; the method is of this size; the scratch is as long as any method asks for.
        Status(unsafe {
            (self.rsa_public)(&from, &to, &n, size.bits() as c_int, self.rsa[size.index()].public, self.fits(scratch))
        })
    }

    /// `to = from ^ d mod n` in each lane; `from` is below `n`.
    pub(super) fn rsa_private(
        &self,
        size: RsaSize,
        from: &Numbers,
        to: &mut Numbers,
        d: &Lanes<&[u64]>,
        n: &Lanes<&[u64]>,
        scratch: &mut Scratch,
    ) -> Status {
        let (d, n) = (words(d, size.limbs()), words(n, size.limbs()));
        let (from, to) = (each(from), each_mut(to));
        let method = self.rsa[size.index()].private;
        // SAFETY: as for `rsa_public`; `d` is as long as `n`.
        Status(unsafe { (self.rsa_private)(&from, &to, &d, &n, size.bits() as c_int, method, self.fits(scratch)) })
    }

    /// The same by the Chinese remainder theorem.
    pub(super) fn rsa_private_crt(
        &self,
        size: RsaSize,
        from: &Numbers,
        to: &mut Numbers,
        keys: &CrtKeys<'_>,
        scratch: &mut Scratch,
    ) -> Status {
        let half = |part| words(part, size.limbs() / 2);
        let (p, q, dp, dq, iq) = (half(&keys.p), half(&keys.q), half(&keys.dp), half(&keys.dq), half(&keys.iq));
        let (from, to) = (each(from), each_mut(to));
        let method = self.rsa[size.index()].crt;
        // SAFETY: as for `rsa_public`; the five parts have half as many words as the modulus.
        Status(unsafe {
            (self.rsa_private_crt)(&from, &to, &p, &q, &dp, &dq, &iq, size.bits() as c_int, method, self.fits(scratch))
        })
    }

    /// The points `k·G` in Jacobian coordinates: (X/Z², Y/Z³).
    pub(super) fn ec_public_key(
        &self,
        curve: LaneCurve,
        k: &Scalars,
        x: &mut Scalars,
        y: &mut Scalars,
        z: &mut Scalars,
    ) -> Status {
        let (k, x, y, z) = (each(k), each_mut(x), each_mut(y), each_mut(z));
        // SAFETY: all arrays have eight pointers to nine words, which is the longest curve's; these functions need
        // no scratch.
        Status(unsafe { (self.curves[curve.index()].public_key)(&x, &y, &z, &k, std::ptr::null_mut()) })
    }

    /// The X coordinates of `d·(X/Z², Y/Z³)`; each point is on the curve.
    pub(super) fn ecdh(&self, curve: LaneCurve, d: &Scalars, points: &Points, shared: &mut ScalarBytes) -> Status {
        let (d, shared) = (each(d), each_mut(shared));
        let (x, y, z) = (each(&points.x), each(&points.y), each(&points.z));
        // SAFETY: as for `ec_public_key`; the results have 66 bytes each, the longest curve's.
        Status(unsafe { (self.curves[curve.index()].ecdh)(&shared, &d, &x, &y, &z, std::ptr::null_mut()) })
    }

    /// Whether `(r, s)` are signatures of `hash` (below the order) by the keys `(x, y)`.
    pub(super) fn ecdsa_verify(
        &self,
        curve: LaneCurve,
        r: &ScalarBytes,
        s: &ScalarBytes,
        hash: &ScalarBytes,
        x: &Scalars,
        y: &Scalars,
    ) -> Status {
        let (hash, r, s, x, y) = (each(hash), each(r), each(s), each(x), each(y));
        // SAFETY: as for `ecdh`; without Z a point is affine.
        Status(unsafe {
            (self.curves[curve.index()].verify)(&r, &s, &hash, &x, &y, std::ptr::null(), std::ptr::null_mut())
        })
    }

    fn fits(&self, scratch: &mut Scratch) -> *mut u8 {
        assert!(scratch.0.len() * 64 >= self.scratch_bytes, "the scratch was made for this library");
        scratch.0.as_mut_ptr().cast()
    }
}

/// Why the lanes can't work on a processor.
pub(super) const NO_IFMA: &str = "this processor has no AVX-512 IFMA";

/// Memory that the RSA functions work in. Cleared after each call and when dropped: there are secrets in it.
pub(super) struct Scratch(Box<[Line]>);

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

impl Scratch {
    pub(super) fn clear(&mut self) {
        let bytes = std::mem::size_of_val(&*self.0);
        // SAFETY: the memory is this box's own, and any bytes are a valid `Line`.
        unsafe { OPENSSL_cleanse(self.0.as_mut_ptr().cast(), bytes) }
    }

    #[cfg(test)]
    pub(super) fn is_clear(&self) -> bool {
        self.0.iter().all(|line| line.0 == [0; 64])
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.clear();
    }
}

unsafe extern "C" {
    // Part of libcrypto's public interface (<openssl/crypto.h>), absent from openssl-sys. A fill with zeros that
    // the compiler can't leave out, at the speed of one that it could.
    fn OPENSSL_cleanse(at: *mut c_void, bytes: usize);
}

/// Overwrites numbers with zeros, as quickly as memory allows.
pub(super) fn clear<T: Copy + Number>(numbers: &mut [T]) {
    // SAFETY: the slice is live and exclusive, and zero bytes are a valid number.
    unsafe { OPENSSL_cleanse(numbers.as_mut_ptr().cast(), std::mem::size_of_val(numbers)) }
}

/// Overwrites the part of the stack that a call before this one has used, as far down as `BYTES`.
#[inline(never)]
pub(super) fn clear_stack<const BYTES: usize>() {
    let mut deep = std::mem::MaybeUninit::<[u8; BYTES]>::uninit();
    // SAFETY: the memory is this function's own, and of that size.
    unsafe { OPENSSL_cleanse(deep.as_mut_ptr().cast(), BYTES) }
}

/// More than the lanes keep on the stack for a multiple of the generator.
pub(super) const STACK_BYTES_GENERATOR: usize = 12 << 10;
/// More than any function of the lanes keeps on the stack: a multiple of any point of P-521 has tables of 24 KiB.
pub(super) const STACK_BYTES_MAX: usize = 40 << 10;

/// Types of which all-zero bytes are a value.
pub(super) trait Number {}
impl Number for u8 {}
impl Number for u64 {}
impl<T: Number, const N: usize> Number for [T; N] {}

/// The addresses of words that are as many as the library is going to read.
fn words(parts: &Lanes<&[u64]>, limbs: usize) -> Lanes<*const u64> {
    assert!(limbs <= LIMBS_MAX && parts.iter().all(|part| part.len() == limbs), "parts of a key have its size");
    parts.map(<[u64]>::as_ptr)
}

fn each<T, const N: usize>(arrays: &Lanes<[T; N]>) -> Lanes<*const T> {
    arrays.each_ref().map(|array| array.as_ptr())
}

fn each_mut<T, const N: usize>(arrays: &mut Lanes<[T; N]>) -> Lanes<*mut T> {
    arrays.each_mut().map(|array| array.as_mut_ptr())
}

fn one_line(text: &str) -> String {
    text.replace('\n', " ")
}
