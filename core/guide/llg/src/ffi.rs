//! The functions of `llg.h`. Each checks its pointers, catches panics and turns failures into a status and a message.

use std::ffi::{c_char, c_int};

use llguidance::toktrie::TokTrie;
use promptcached_ffi::{bytes, guarded_value, OwnedSlice};

use crate::grammar::{Grammar, Matcher, Syntax};
use crate::vocabulary::Vocabulary;
use crate::Failure;

const REFUSED: c_int = 1;
const FAILED: c_int = 2;

impl promptcached_ffi::Failure for Failure {
    fn fault(message: String) -> Self {
        Failure::Failed(message)
    }

    fn into_parts(self) -> (c_int, String) {
        match self {
            Failure::Refused(message) => (REFUSED, message),
            Failure::Failed(message) => (FAILED, message),
        }
    }
}

#[repr(C)]
pub struct FfiToken {
    data: *const c_char,
    size: usize,
    is_control: c_int,
}

unsafe fn guarded<T>(out: *mut T, error: *mut OwnedSlice<u8>, body: impl FnOnce() -> Result<T, Failure>) -> c_int {
    promptcached_ffi::guarded(out, error, body)
}

unsafe fn items<'a, T>(data: *const T, count: usize) -> &'a [T] {
    if count == 0 {
        &[]
    } else {
        std::slice::from_raw_parts(data, count)
    }
}

fn unsigned(id: i32) -> Result<u32, Failure> {
    u32::try_from(id).map_err(|_| Failure::Failed(format!("token id {id} is negative")))
}

fn syntax_of(number: c_int) -> Result<Syntax, Failure> {
    match number {
        0 => Ok(Syntax::JsonSchema),
        1 => Ok(Syntax::Regex),
        2 => Ok(Syntax::Lark),
        _ => Err(Failure::Failed(format!("no syntax has the number {number}"))),
    }
}

// Safety of all functions below: as llg.h asks, pointers are valid for the sizes given, out pointers are writable, and
// handles come from the matching `new` function and are not yet freed.

#[no_mangle]
pub unsafe extern "C" fn pc_llg_bytes_free(value: OwnedSlice<u8>) {
    value.free();
}

#[no_mangle]
pub unsafe extern "C" fn pc_llg_vocabulary_new(
    tokens: *const FfiToken,
    count: usize,
    end_tokens: *const i32,
    end_count: usize,
    vocabulary: *mut *mut Vocabulary,
    error: *mut OwnedSlice<u8>,
) -> c_int {
    guarded(vocabulary, error, || {
        let word = |token: &FfiToken| {
            let marked = token.is_control != 0 && token.size > 0;
            let marker: &[u8] = if marked { &[TokTrie::SPECIAL_TOKEN_MARKER] } else { &[] };
            [marker, bytes(token.data, token.size)].concat()
        };
        let words: Vec<Vec<u8>> = items(tokens, count).iter().map(word).collect();
        let ends: Result<Vec<u32>, Failure> = items(end_tokens, end_count).iter().map(|id| unsigned(*id)).collect();
        Ok(Box::into_raw(Box::new(Vocabulary::new(&words, &ends?)?)))
    })
}

#[no_mangle]
pub unsafe extern "C" fn pc_llg_vocabulary_free(vocabulary: *mut Vocabulary) {
    if !vocabulary.is_null() {
        guarded_value((), || drop(Box::from_raw(vocabulary)));
    }
}

#[no_mangle]
pub unsafe extern "C" fn pc_llg_grammar_new(
    vocabulary: *const Vocabulary,
    syntax: c_int,
    text: *const c_char,
    size: usize,
    grammar: *mut *mut Grammar,
    error: *mut OwnedSlice<u8>,
) -> c_int {
    guarded(grammar, error, || {
        let text = std::str::from_utf8(bytes(text, size))
            .map_err(|e| Failure::Refused(format!("not valid UTF-8 (byte {})", e.valid_up_to())))?;
        Ok(Box::into_raw(Box::new(Grammar::compile(&*vocabulary, syntax_of(syntax)?, text)?)))
    })
}

#[no_mangle]
pub unsafe extern "C" fn pc_llg_grammar_free(grammar: *mut Grammar) {
    if !grammar.is_null() {
        guarded_value((), || drop(Box::from_raw(grammar)));
    }
}

#[no_mangle]
pub unsafe extern "C" fn pc_llg_matcher_new(
    grammar: *const Grammar,
    matcher: *mut *mut Matcher,
    error: *mut OwnedSlice<u8>,
) -> c_int {
    guarded(matcher, error, || Ok(Box::into_raw(Box::new((*grammar).start()?))))
}

#[no_mangle]
pub unsafe extern "C" fn pc_llg_matcher_free(matcher: *mut Matcher) {
    if !matcher.is_null() {
        guarded_value((), || drop(Box::from_raw(matcher)));
    }
}

#[no_mangle]
pub unsafe extern "C" fn pc_llg_matcher_mask(
    matcher: *mut Matcher,
    words: *mut u32,
    count: usize,
    error: *mut OwnedSlice<u8>,
) -> c_int {
    let mut done = ();
    guarded(&mut done, error, || {
        let words = if count == 0 { &mut [] } else { std::slice::from_raw_parts_mut(words, count) };
        (*matcher).write_mask(words)
    })
}

#[no_mangle]
pub unsafe extern "C" fn pc_llg_matcher_accept(
    matcher: *mut Matcher,
    token: i32,
    is_over: *mut c_int,
    error: *mut OwnedSlice<u8>,
) -> c_int {
    guarded(is_over, error, || Ok(c_int::from((*matcher).accept(unsigned(token)?)?)))
}
