// C interface of the promptcached_hf crate (Rust): Hugging Face tokenizers and Jinja chat templates.
//
// Functions that can fail return a PcHfStatus and, unless it is kPcHfOk, set `*error` to a message in UTF-8. Whatever
// comes back as PcHfBytes, PcHfIds or PcHfPieces is owned by the caller and given back with the matching free function.
// Handles are immutable: any number of threads may use one at the same time. A Rust panic never crosses this line; it
// is reported as kPcHfFailed.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

struct PcHfTokenizer;
struct PcHfTemplate;

enum PcHfStatus : int {
  kPcHfOk = 0,
  kPcHfInvalidText = 1,  // the text is not UTF-8, or cannot be encoded with this vocabulary
  kPcHfRaised = 2,       // the template called raise_exception: `*error` is its own message
  kPcHfFailed = 3        // anything else: a broken file, a template error, a fault in a library
};

struct PcHfBytes {
  char* data;  // null when `size` is 0
  std::size_t size;
};

struct PcHfIds {
  std::int32_t* data;
  std::size_t size;
};

// A stretch [begin, end) of a text in bytes: a control token, or plain text when `id` is -1.
struct PcHfPiece {
  std::int32_t id;
  std::size_t begin;
  std::size_t end;
};

struct PcHfPieces {
  PcHfPiece* data;
  std::size_t size;
};

void pc_hf_bytes_free(PcHfBytes bytes);
void pc_hf_ids_free(PcHfIds ids);
void pc_hf_pieces_free(PcHfPieces pieces);

// `json` is the text of a tokenizer.json.
PcHfStatus pc_hf_tokenizer_new(const char* json, std::size_t size, PcHfTokenizer** tokenizer, PcHfBytes* error);
void pc_hf_tokenizer_free(PcHfTokenizer* tokenizer);

// Flags of pc_hf_encode.
enum PcHfEncodeFlag : std::uint32_t {
  kPcHfAllowSpecial = 1,  // spelled control tokens become control tokens; else they are ordinary text
  kPcHfContinuation = 2   // the text stands behind a control token, not at the start of the input
};

// Token ids of `text`, without what the post-processor (BOS, EOS), truncation or padding in tokenizer.json would do.
PcHfStatus pc_hf_encode(const PcHfTokenizer* tokenizer, const char* text, std::size_t size, std::uint32_t flags,
                        PcHfIds* ids, PcHfBytes* error);

// The bytes that `ids` stand for, which may start or end within a character. Ids outside the vocabulary give none.
PcHfStatus pc_hf_decode(const PcHfTokenizer* tokenizer, const std::int32_t* ids, std::size_t count, int skip_special,
                        PcHfBytes* bytes, PcHfBytes* error);

// Where the control tokens (added tokens marked special) stand in `text`; the pieces cover it.
PcHfStatus pc_hf_split(const PcHfTokenizer* tokenizer, const char* text, std::size_t size, PcHfPieces* pieces,
                       PcHfBytes* error);

// Ids, or -1 where there is none.
std::int32_t pc_hf_token_to_id(const PcHfTokenizer* tokenizer, const char* token, std::size_t size);
std::int32_t pc_hf_bos_id(const PcHfTokenizer* tokenizer);      // what the post-processor puts in front of a text
std::int32_t pc_hf_unk_id(const PcHfTokenizer* tokenizer);      // the model's unknown token
std::int64_t pc_hf_vocab_size(const PcHfTokenizer* tokenizer);  // highest id + 1, added tokens included

// Compiles a Jinja template. `variables`: a JSON object with what every rendering sees (bos_token, eos_token, ...).
PcHfStatus pc_hf_template_new(const char* source, std::size_t source_size, const char* variables,
                              std::size_t variables_size, PcHfTemplate** chat_template, PcHfBytes* error);
void pc_hf_template_free(PcHfTemplate* chat_template);

// Renders with the members of the JSON object `context` (messages, add_generation_prompt, ...) as variables.
PcHfStatus pc_hf_template_render(const PcHfTemplate* chat_template, const char* context, std::size_t size,
                                 PcHfBytes* text, PcHfBytes* error);

}  // extern "C"
