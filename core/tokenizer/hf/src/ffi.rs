//! The functions of `hf.h`. Each checks its pointers, catches panics and turns failures into a status and a message.

use std::ffi::{c_char, c_int};

use promptcached_ffi::{bytes, guarded_value, OwnedSlice};

use crate::template::Template;
use crate::tokenizer::Tokenizer;
use crate::Failure;

const INVALID_TEXT: c_int = 1;
const RAISED: c_int = 2;
const FAILED: c_int = 3;

const ALLOW_SPECIAL: u32 = 1;
const CONTINUATION: u32 = 2;

impl promptcached_ffi::Failure for Failure {
    fn fault(message: String) -> Self {
        Failure::Failed(message)
    }

    fn into_parts(self) -> (c_int, String) {
        match self {
            Failure::InvalidText(message) => (INVALID_TEXT, message),
            Failure::Raised(message) => (RAISED, message),
            Failure::Failed(message) => (FAILED, message),
        }
    }
}

#[repr(C)]
pub struct FfiPiece {
    id: i32,
    begin: usize,
    end: usize,
}

unsafe fn guarded<T>(out: *mut T, error: *mut OwnedSlice<u8>, body: impl FnOnce() -> Result<T, Failure>) -> c_int {
    promptcached_ffi::guarded(out, error, body)
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
