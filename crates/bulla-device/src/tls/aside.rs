//! A handshake that is set aside while a device works with its private key.
//!
//! OpenSSL runs such a handshake on a stack of its own (`ASYNC_start_job`). The key's method leaves the job here and
//! pauses; the driver of the handshake takes it, has it done, leaves the answer, and drives on. One thread does all
//! of that.

use std::cell::RefCell;
use std::os::raw::{c_int, c_long, c_void};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foreign_types::ForeignTypeRef;
use openssl::ssl::{ErrorCode, SslRef};

use super::stack;
use crate::device::DeviceError;
use crate::work::{Job, Output};

/// Handshakes that may be aside at once, each with a stack; others use their keys in place.
pub const HANDSHAKES_ASIDE_MAX: usize = 1024;

static ASIDE: AtomicUsize = AtomicUsize::new(0);

mod ffi {
    use std::os::raw::{c_int, c_void};

    unsafe extern "C" {
        pub(super) fn ASYNC_get_current_job() -> *mut c_void;
        pub(super) fn ASYNC_pause_job() -> c_int;
    }

    pub(super) const SSL_CTRL_MODE: c_int = 33;
    pub(super) const SSL_CTRL_CLEAR_MODE: c_int = 78;
    /// SSL_MODE_ASYNC
    pub(super) const MODE_ASYNC: std::os::raw::c_long = 0x100;
    /// SSL_ERROR_WANT_ASYNC
    pub(super) const WANT_ASYNC: c_int = 9;
}

thread_local! {
    /// The handshake that this thread drives at the moment.
    static DRIVEN: RefCell<Option<Arc<Exchange>>> = const { RefCell::new(None) };
}

/// What passes between a key's method and the driver of the handshake.
#[derive(Default)]
struct Exchange {
    inside: Mutex<Inside>,
}

#[derive(Default)]
struct Inside {
    question: Option<Job>,
    answer: Option<Result<Output, DeviceError>>,
    /// A question was asked, and the handshake has not gone on since.
    is_paused: bool,
}

impl Exchange {
    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right of one handshake to be set aside. It ends when this is dropped, which must be after the handshake came to
/// its end: see [`end`](Aside::end).
pub struct Aside {
    exchange: Arc<Exchange>,
}

impl Aside {
    /// Lets a handshake that has not begun be set aside; nothing where too many are, or there is no memory for stacks.
    pub fn begin(ssl: &SslRef) -> Option<Aside> {
        if !stack::is_ready() || ASIDE.fetch_add(1, Ordering::Relaxed) >= HANDSHAKES_ASIDE_MAX {
            if stack::is_ready() {
                ASIDE.fetch_sub(1, Ordering::Relaxed);
            }
            return None;
        }
        set_mode(ssl, ffi::SSL_CTRL_MODE);
        Some(Aside { exchange: Arc::default() })
    }

    /// Drives the handshake by `step`, a call of the library.
    pub fn drive<T>(&self, step: impl FnOnce() -> T) -> T {
        let before = DRIVEN.replace(Some(self.exchange.clone()));
        let outcome = step();
        DRIVEN.replace(before);
        outcome
    }

    /// What the handshake waits for, to be asked for when [`is_paused`](Self::is_paused); it is given out once.
    pub fn take_question(&self) -> Option<Job> {
        self.exchange.lock().question.take()
    }

    /// The answer; the handshake goes on when it is driven the next time.
    pub fn answer(&self, result: Result<Output, DeviceError>) {
        self.exchange.lock().answer = Some(result);
    }

    /// Whether the handshake waits for an answer.
    pub fn is_waiting(&self) -> bool {
        let inside = self.exchange.lock();
        inside.is_paused && inside.answer.is_none()
    }

    /// Whether it stands still in the middle of a call, be its answer there or not. A session must not be freed then.
    pub fn is_paused(&self) -> bool {
        self.exchange.lock().is_paused
    }

    /// Whether that error of a call says that it was set aside.
    pub fn is_set_aside(code: ErrorCode) -> bool {
        code.as_raw() == ffi::WANT_ASYNC
    }

    /// The handshake is complete: from now on the session's calls are carried out in place.
    pub fn end(self, ssl: &SslRef) {
        set_mode(ssl, ffi::SSL_CTRL_CLEAR_MODE);
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        ASIDE.fetch_sub(1, Ordering::Relaxed);
    }
}

fn set_mode(ssl: &SslRef, command: c_int) {
    const MODE: c_long = ffi::MODE_ASYNC;
    // SAFETY: the pointer comes from a live reference; the call sets a word of the session.
    unsafe { openssl_sys::SSL_ctrl(ssl.as_ptr(), command, MODE, ptr::null_mut::<c_void>()) };
}

/// Has a job done elsewhere, where the handshake under way may be set aside; gives it back otherwise. Called by a key's
/// method, in the middle of a handshake.
pub(super) fn ask(job: Job) -> Result<Result<Output, DeviceError>, Job> {
    // The borrow ends here: the thread goes on with other handshakes while this one is paused.
    let Some(exchange) = DRIVEN.with_borrow(Clone::clone) else { return Err(job) };
    // SAFETY: the call has no conditions.
    if unsafe { ffi::ASYNC_get_current_job() }.is_null() {
        return Err(job);
    }
    {
        let mut inside = exchange.lock();
        (inside.question, inside.answer, inside.is_paused) = (Some(job), None, true);
    }
    loop {
        // SAFETY: this is the stack of an asynchronous job, as was asked above; no lock and no borrow is held across
        // the pause, and the same thread comes back here, because a session has one owner.
        if unsafe { ffi::ASYNC_pause_job() } != 1 {
            exchange.lock().is_paused = false;
            return Ok(Err(DeviceError::Cancelled));
        }
        let mut inside = exchange.lock();
        if let Some(answer) = inside.answer.take() {
            inside.is_paused = false;
            return Ok(answer);
        }
    }
}
