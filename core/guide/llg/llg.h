// C interface of the promptcached_llg crate (Rust): grammars over a model's tokens, by llguidance.
//
// Functions that can fail return a PcLlgStatus and, unless it is kPcLlgOk, set `*error` to a message in UTF-8, owned by
// the caller and given back with pc_llg_bytes_free. A vocabulary and a grammar are immutable: any number of threads may
// use one at the same time. A matcher is one sequence's, used by one thread at a time. Whatever comes from another may
// outlive it. A Rust panic never crosses this line; it is reported as kPcLlgFailed.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

struct PcLlgVocabulary;
struct PcLlgGrammar;
struct PcLlgMatcher;

enum PcLlgStatus : int {
  kPcLlgOk = 0,
  kPcLlgRefused = 1,  // the client's schema, regex or grammar is at fault, or costs more than one may
  kPcLlgFailed = 2    // anything else: a fault in a library
};

enum PcLlgSyntax : int { kPcLlgJsonSchema = 0, kPcLlgRegex = 1, kPcLlgLark = 2 };

struct PcLlgBytes {
  char* data;  // null when `size` is 0
  std::size_t size;
};

// What a token stands for; `size` 0: nothing, and no grammar ever allows it. Control tokens have their spelling, which
// no text of a grammar matches.
struct PcLlgToken {
  const char* data;
  std::size_t size;
  int is_control;
};

void pc_llg_bytes_free(PcLlgBytes bytes);

// `tokens`: by id. `end_tokens`: what may end a text, each below `count`.
PcLlgStatus pc_llg_vocabulary_new(const PcLlgToken* tokens, std::size_t count, const std::int32_t* end_tokens,
                                  std::size_t end_count, PcLlgVocabulary** vocabulary, PcLlgBytes* error);
void pc_llg_vocabulary_free(PcLlgVocabulary* vocabulary);

PcLlgStatus pc_llg_grammar_new(const PcLlgVocabulary* vocabulary, PcLlgSyntax syntax, const char* text,
                               std::size_t size, PcLlgGrammar** grammar, PcLlgBytes* error);
void pc_llg_grammar_free(PcLlgGrammar* grammar);

// At the grammar's beginning.
PcLlgStatus pc_llg_matcher_new(const PcLlgGrammar* grammar, PcLlgMatcher** matcher, PcLlgBytes* error);
void pc_llg_matcher_free(PcLlgMatcher* matcher);

// Writes which tokens may come next: bit i % 32 of word i / 32 for token i.
PcLlgStatus pc_llg_matcher_mask(PcLlgMatcher* matcher, std::uint32_t* words, std::size_t count, PcLlgBytes* error);
// Goes on behind `token`, which was allowed and ends no text. `*is_over`: not 0 when nothing can follow it.
PcLlgStatus pc_llg_matcher_accept(PcLlgMatcher* matcher, std::int32_t token, int* is_over, PcLlgBytes* error);

}  // extern "C"
