// TokenGuide: what a grammar lets one sequence say next.
//
// The mask of the next token is computed by MaskWorkers from the moment the last one is known, while the model computes
// the logits it is for. Only accepted tokens change it, and those outlive a preemption, so nothing here needs to be
// done again when a sequence is computed anew.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>

#include "core/base/status.h"
#include "core/engine/mask_workers.h"
#include "core/guide/grammar.h"
#include "core/guide/token_mask.h"

namespace promptcached::engine {

class TokenGuide final : public std::enable_shared_from_this<TokenGuide> {
 public:
  // `tokens`: width of a row of logits. `workers` outlives the guide's last call.
  TokenGuide(guide::Matcher matcher, std::size_t tokens, MaskWorkers& workers);

  // Has the mask computed by the workers. From any thread, once for each mask at most.
  void prepare();

  // What may come next. Waits for a worker that is at it, and computes the mask here when none has begun. Good until
  // accept(). Error: the grammar costs more than one may (kInvalidField), kInternal.
  Result<std::span<const std::uint32_t>> mask();

  // Goes on behind `token`, which mask() has allowed and which is no end token. True: nothing can follow. Errors as
  // above.
  Result<bool> accept(std::int32_t token);

 private:
  enum class Stage { kStale, kComputing, kReady };

  void compute();

  MaskWorkers& workers_;
  std::mutex mutex_;  // guards stage_; who has set kComputing, and the engine thread while kReady, own what follows
  std::condition_variable ready_;
  Stage stage_ = Stage::kStale;
  guide::Matcher matcher_;
  guide::TokenMask mask_;
  Status computed_;
};

}  // namespace promptcached::engine
