//! Stacks of handshakes that are set aside: OpenSSL's own have 32 KiB and nothing behind them, and a handshake here may
//! read files.

use std::os::raw::{c_int, c_void};
use std::ptr;
use std::sync::OnceLock;

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

/// Bytes of a stack. Memory comes by the page as it is used.
const STACK_BYTES: usize = 256 << 10;
/// Bytes below it that no code may touch: an overflow stops the process instead of writing elsewhere.
const GUARD_BYTES: usize = 64 << 10;

mod ffi {
    use std::os::raw::{c_int, c_void};

    unsafe extern "C" {
        pub(super) fn ASYNC_set_mem_functions(
            alloc: unsafe extern "C" fn(*mut usize) -> *mut c_void,
            free: unsafe extern "C" fn(*mut c_void),
        ) -> c_int;
    }
}

/// Whether handshakes have stacks of this kind; the first call arranges for it, and it stays as it is then.
pub(super) fn is_ready() -> bool {
    static READY: OnceLock<bool> = OnceLock::new();
    // SAFETY: both functions are of the types that the library calls, and keep its contract: memory of the length that
    // is written back, or null; what was given out comes back once.
    *READY.get_or_init(|| unsafe { ffi::ASYNC_set_mem_functions(allocate, free) == 1 as c_int })
}

unsafe extern "C" fn allocate(len: *mut usize) -> *mut c_void {
    // SAFETY: the kernel chooses an address that is free; the lower part of what it gives is closed before any code has
    // the pointer. `len` is a place of the library's, which it gives for the length.
    unsafe {
        let whole = GUARD_BYTES + STACK_BYTES;
        let Ok(base) = mmap_anonymous(ptr::null_mut(), whole, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        else {
            return ptr::null_mut();
        };
        if mprotect(base, GUARD_BYTES, MprotectFlags::empty()).is_err() {
            let _ = munmap(base, whole);
            return ptr::null_mut();
        }
        *len = STACK_BYTES;
        base.byte_add(GUARD_BYTES)
    }
}

unsafe extern "C" fn free(stack: *mut c_void) {
    if stack.is_null() {
        return;
    }
    // SAFETY: `stack` came from `allocate`, so its mapping begins that far below and has that length.
    unsafe {
        let _ = munmap(stack.byte_sub(GUARD_BYTES), GUARD_BYTES + STACK_BYTES);
    }
}
