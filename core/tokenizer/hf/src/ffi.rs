//! The functions of `hf.h`. Each checks its pointers, catches panics and turns failures into a status and a message.

use std::cell::RefCell;
use std::ffi::{c_char, c_int};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Once;

use crate::template::Template;
use crate::tokenizer::Tokenizer;
use crate::Failure;

const OK: c_int = 0;
const INVALID_TEXT: c_int = 1;
const RAISED: c_int = 2;
const FAILED: c_int = 3;

const ALLOW_SPECIAL: u32 = 1;
const CONTINUATION: u32 = 2;

/// A boxed slice handed to C: PcHfBytes, PcHfIds and PcHfPieces.
#[repr(C)]
pub struct OwnedSlice<T> {
    data: *mut T,
    size: usize,
}

impl<T> OwnedSlice<T> {
    fn new(items: Vec<T>) -> Self {
        let size = items.len();
        if size == 0 {
            return OwnedSlice { data: std::ptr::null_mut(), size };
        }
        OwnedSlice { data: Box::into_raw(items.into_boxed_slice()).cast(), size }
    }

    /// # Safety
    /// `self` came from `new` and has not been freed.
    unsafe fn free(self) {
        if !self.data.is_null() {
            drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(self.data, self.size)));
        }
    }
}

#[repr(C)]
pub struct FfiPiece {
    id: i32,
    begin: usize,
    end: usize,
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

/// Runs `body` and writes its result to `out`, or its failure to `error`.
unsafe fn guarded<T>(out: *mut T, error: *mut OwnedSlice<u8>, body: impl FnOnce() -> Result<T, Failure>) -> c_int {
    quiet_panics();
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        let place = PANIC_PLACE.with(|cell| cell.borrow().clone());
        Err(Failure::Failed(format!("internal fault at {place}")))
    });
    let (status, message) = match result {
        Ok(value) => {
            out.write(value);
            return OK;
        }
        Err(Failure::InvalidText(message)) => (INVALID_TEXT, message),
        Err(Failure::Raised(message)) => (RAISED, message),
        Err(Failure::Failed(message)) => (FAILED, message),
    };
    error.write(OwnedSlice::new(message.into_bytes()));
    status
}

/// For functions that have no way to fail but a panic.
fn guarded_value<T>(fallback: T, body: impl FnOnce() -> T) -> T {
    quiet_panics();
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(fallback)
}

unsafe fn bytes<'a>(data: *const c_char, size: usize) -> &'a [u8] {
    if size == 0 {
        &[]
    } else {
        std::slice::from_raw_parts(data.cast(), size)
    }
}

unsafe fn text<'a>(data: *const c_char, size: usize) -> Result<&'a str, Failure> {
    std::str::from_utf8(bytes(data, size))
        .map_err(|e| Failure::InvalidText(format!("the text is not valid UTF-8 (byte {})", e.valid_up_to())))
}

fn id_or_none(id: Option<u32>) -> i32 {
    id.and_then(|id| i32::try_from(id).ok()).unwrap_or(-1)
}

fn signed(id: u32) -> Result<i32, Failure> {
    i32::try_from(id).map_err(|_| Failure::Failed(format!("token id {id} is out of range")))
}

// Safety of all functions below: as hf.h asks, pointers are valid for the sizes given, out pointers are writable, and
// handles come from the matching `new` function and are not yet freed.

#[no_mangle]
pub unsafe extern "C" fn pc_hf_bytes_free(value: OwnedSlice<u8>) {
    value.free();
}

#[no_mangle]
pub unsafe extern "C" fn pc_hf_ids_free(value: OwnedSlice<i32>) {
    value.free();
}

#[no_mangle]
pub unsafe extern "C" fn pc_hf_pieces_free(value: OwnedSlice<FfiPiece>) {
    value.free();
}

#[no_mangle]
pub unsafe extern "C" fn pc_hf_tokenizer_new(
    json: *const c_char,
    size: usize,
    tokenizer: *mut *mut Tokenizer,
    error: *mut OwnedSlice<u8>,
) -> c_int {
    guarded(tokenizer, error, || Ok(Box::into_raw(Box::new(Tokenizer::from_json(bytes(json, size))?))))
}

#[no_mangle]
pub unsafe extern "C" fn pc_hf_tokenizer_free(tokenizer: *mut Tokenizer) {
    if !tokenizer.is_null() {
        guarded_value((), || drop(Box::from_raw(tokenizer)));
    }
}

#[no_mangle]
pub unsafe extern "C" fn pc_hf_encode(
    tokenizer: *const Tokenizer,
    data: *const c_char,
    size: usize,
    flags: u32,
    ids: *mut OwnedSlice<i32>,
    error: *mut OwnedSlice<u8>,
) -> c_int {
    guarded(ids, error, || {
        let text = text(data, size)?;
        let encoded = (*tokenizer).encode(text, flags & ALLOW_SPECIAL != 0, flags & CONTINUATION != 0)?;
        let signed: Result<Vec<i32>, Failure> = encoded.into_iter().map(signed).collect();
        Ok(OwnedSlice::new(signed?))
    })
}

#[no_mangle]
pub unsafe extern "C" fn pc_hf_decode(
    tokenizer: *const Tokenizer,
    ids: *const i32,
    count: usize,
    skip_special: c_int,
    out: *mut OwnedSlice<u8>,
    error: *mut OwnedSlice<u8>,
) -> c_int {
    guarded(out, error, || {
        let ids = if count == 0 { &[] } else { std::slice::from_raw_parts(ids, count) };
        let ids = ids.iter().filter_map(|id| u32::try_from(*id).ok());
        Ok(OwnedSlice::new((*tokenizer).decode(ids, skip_special != 0)?))
    })
}

#[no_mangle]
pub unsafe extern "C" fn pc_hf_split(
    tokenizer: *const Tokenizer,
    data: *const c_char,
    size: usize,
    pieces: *mut OwnedSlice<FfiPiece>,
    error: *mut OwnedSlice<u8>,
) -> c_int {
    guarded(pieces, error, || {
        let pieces = (*tokenizer).split(text(data, size)?);
        let pieces = pieces.into_iter().map(|p| FfiPiece { id: id_or_none(p.id), begin: p.begin, end: p.end });
        Ok(OwnedSlice::new(pieces.collect()))
    })
}

#[no_mangle]
pub unsafe extern "C" fn pc_hf_token_to_id(tokenizer: *const Tokenizer, token: *const c_char, size: usize) -> i32 {
    guarded_value(-1, || match text(token, size) {
        Ok(token) => id_or_none((*tokenizer).token_to_id(token)),
        Err(_) => -1,
    })
}

#[no_mangle]
pub unsafe extern "C" fn pc_hf_bos_id(tokenizer: *const Tokenizer) -> i32 {
    id_or_none((*tokenizer).bos_id())
}

#[no_mangle]
pub unsafe extern "C" fn pc_hf_unk_id(tokenizer: *const Tokenizer) -> i32 {
    id_or_none((*tokenizer).unk_id())
}

#[no_mangle]
pub unsafe extern "C" fn pc_hf_vocab_size(tokenizer: *const Tokenizer) -> i64 {
    (*tokenizer).vocab_size()
}

#[no_mangle]
pub unsafe extern "C" fn pc_hf_template_new(
    source: *const c_char,
    source_size: usize,
    variables: *const c_char,
    variables_size: usize,
    template: *mut *mut Template,
    error: *mut OwnedSlice<u8>,
) -> c_int {
    guarded(template, error, || {
        let template = Template::new(text(source, source_size)?, text(variables, variables_size)?)?;
        Ok(Box::into_raw(Box::new(template)))
    })
}

#[no_mangle]
pub unsafe extern "C" fn pc_hf_template_free(template: *mut Template) {
    if !template.is_null() {
        guarded_value((), || drop(Box::from_raw(template)));
    }
}

#[no_mangle]
pub unsafe extern "C" fn pc_hf_template_render(
    template: *const Template,
    context: *const c_char,
    size: usize,
    out: *mut OwnedSlice<u8>,
    error: *mut OwnedSlice<u8>,
) -> c_int {
    guarded(out, error, || Ok(OwnedSlice::new((*template).render(text(context, size)?)?.into_bytes())))
}
