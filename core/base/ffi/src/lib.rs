//! Borders to C: buffers that change hands, failures as a status and a message, and panics that stay on this side.

use std::cell::RefCell;
use std::ffi::{c_char, c_int};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Once;

pub const OK: c_int = 0;

/// A boxed slice handed to C: a struct of a pointer and a size.
#[repr(C)]
pub struct OwnedSlice<T> {
    data: *mut T,
    size: usize,
}

impl<T> OwnedSlice<T> {
    pub fn new(items: Vec<T>) -> Self {
        let size = items.len();
        if size == 0 {
            return OwnedSlice { data: std::ptr::null_mut(), size };
        }
        OwnedSlice { data: Box::into_raw(items.into_boxed_slice()).cast(), size }
    }

    /// # Safety
    /// `self` came from `new` and has not been freed.
    pub unsafe fn free(self) {
        if !self.data.is_null() {
            drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(self.data, self.size)));
        }
    }
}

/// Why a call failed, as C sees it.
pub trait Failure {
    /// A fault of ours: `message` says where.
    fn fault(message: String) -> Self;
    /// The status (not OK) and the message.
    fn into_parts(self) -> (c_int, String);
}

thread_local! {
    static PANIC_PLACE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Keeps where a panic happened and prints nothing: its message may hold prompt text, which does not belong in a log.
fn quiet_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        std::panic::set_hook(Box::new(|info| {
            let place = info.location().map(ToString::to_string).unwrap_or_default();
            PANIC_PLACE.with(|cell| *cell.borrow_mut() = place);
        }));
    });
}

/// Runs `body` and writes its result to `out`, or the message of its failure to `error`; returns the status.
///
/// # Safety
/// `out` and `error` are writable.
pub unsafe fn guarded<T, F: Failure>(
    out: *mut T,
    error: *mut OwnedSlice<u8>,
    body: impl FnOnce() -> Result<T, F>,
) -> c_int {
    quiet_panics();
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        let place = PANIC_PLACE.with(|cell| cell.borrow().clone());
        Err(F::fault(format!("internal fault at {place}")))
    });
    match result {
        Ok(value) => {
            out.write(value);
            OK
        }
        Err(failure) => {
            let (status, message) = failure.into_parts();
            error.write(OwnedSlice::new(message.into_bytes()));
            status
        }
    }
}

/// For functions that have no way to fail but a panic.
pub fn guarded_value<T>(fallback: T, body: impl FnOnce() -> T) -> T {
    quiet_panics();
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(fallback)
}

/// # Safety
/// `data` is valid for `size` bytes, and stays so as long as the result is used.
pub unsafe fn bytes<'a>(data: *const c_char, size: usize) -> &'a [u8] {
    if size == 0 {
        &[]
    } else {
        std::slice::from_raw_parts(data.cast(), size)
    }
}
