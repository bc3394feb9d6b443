//! The functions of `remote.h`.

use std::ffi::{c_char, c_int};
use std::time::Duration;

use promptcached_ffi::{bytes, guarded, guarded_value, OwnedSlice, OK};

use crate::store::Store;
use crate::Failure;

const BAD_URI: c_int = 1;
const TIMEOUT: c_int = 2;
const FAILED: c_int = 3;
const ABSENT: c_int = 4;

impl promptcached_ffi::Failure for Failure {
    fn fault(message: String) -> Self {
        Failure::Failed(message)
    }

    fn into_parts(self) -> (c_int, String) {
        match self {
            Failure::BadUri(message) => (BAD_URI, message),
            Failure::Timeout(message) => (TIMEOUT, message),
            Failure::Failed(message) => (FAILED, message),
        }
    }
}

unsafe fn text<'a>(data: *const c_char, size: usize) -> Result<&'a str, Failure> {
    std::str::from_utf8(bytes(data, size)).map_err(|_| Failure::BadUri("the text is not valid UTF-8".into()))
}

// Safety of all functions below: as remote.h asks, pointers are valid for the sizes given, out pointers are writable, and
// stores come from pc_remote_open and are not yet freed.

#[no_mangle]
pub unsafe extern "C" fn pc_remote_bytes_free(value: OwnedSlice<u8>) {
    value.free();
}

#[no_mangle]
pub unsafe extern "C" fn pc_remote_open(
    uri: *const c_char,
    size: usize,
    timeout_ms: u64,
    max_concurrent: u32,
    store: *mut *mut Store,
    message: *mut OwnedSlice<u8>,
) -> c_int {
    guarded(store, message, || {
        let opened = Store::open(text(uri, size)?, Duration::from_millis(timeout_ms), max_concurrent as usize)?;
        Ok::<_, Failure>(Box::into_raw(Box::new(opened)))
    })
}

#[no_mangle]
pub unsafe extern "C" fn pc_remote_free(store: *mut Store) {
    if !store.is_null() {
        guarded_value((), || drop(Box::from_raw(store)));
    }
}

#[no_mangle]
pub unsafe extern "C" fn pc_remote_describe(store: *const Store) -> OwnedSlice<u8> {
    OwnedSlice::new((*store).describe().as_bytes().to_vec())
}

#[no_mangle]
pub unsafe extern "C" fn pc_remote_read(
    store: *const Store,
    name: *const c_char,
    size: usize,
    value: *mut OwnedSlice<u8>,
    message: *mut OwnedSlice<u8>,
) -> c_int {
    let mut found = None;
    let status = guarded(&mut found, message, || (*store).read(text(name, size)?));
    match found {
        Some(bytes) => value.write(OwnedSlice::new(bytes)),
        None if status == OK => return ABSENT,
        None => {}
    }
    status
}

#[no_mangle]
pub unsafe extern "C" fn pc_remote_write(
    store: *const Store,
    name: *const c_char,
    size: usize,
    value: *const c_char,
    value_size: usize,
    message: *mut OwnedSlice<u8>,
) -> c_int {
    guarded(&mut (), message, || (*store).write(text(name, size)?, bytes(value, value_size)))
}

#[no_mangle]
pub unsafe extern "C" fn pc_remote_remove(
    store: *const Store,
    name: *const c_char,
    size: usize,
    message: *mut OwnedSlice<u8>,
) -> c_int {
    guarded(&mut (), message, || (*store).remove(text(name, size)?))
}
