// Service: what the routes work on, and how far the server has come: loading, warming, ready, draining.
//
// The listener is open before the model is loaded, so that probes get an answer; until then there is no backend.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>

#include "core/base/metrics.h"
#include "core/base/status.h"
#include "core/engine/engine.h"
#include "core/pml/schema.h"
#include "core/tokenizer/chat_template.h"

namespace promptcached::api {

struct ServiceOptions {
  std::chrono::milliseconds request_timeout{600'000};  // from arrival to the last token
  std::chrono::milliseconds heartbeat{15'000};         // a stream's longest silence
  bool log_prompts = false;
  std::string version;     // of the program, for /openapi.json
  pml::Limits pml_limits;  // for prompts; the engine has its own copy for schemas
};

// There once the model is loaded. What it refers to outlives the service's users.
struct Backend {
  engine::Engine* engine = nullptr;
  Metrics* metrics = nullptr;
  std::string model_name;                             // as served
  std::shared_ptr<const ChatTemplate> chat_template;  // null: the model has none
  std::int64_t loaded_at = 0;                         // Unix seconds
};

struct Readiness {
  bool ready = false;
  Error reason;  // kNotReady or kDraining, when not ready
};

// Thread-safe.
class Service final {
 public:
  explicit Service(ServiceOptions options) : options_(options) {}

  const ServiceOptions& options() const { return options_; }

  std::shared_ptr<const Backend> backend() const;  // null: still loading
  void set_backend(std::shared_ptr<const Backend> backend);

  Readiness readiness() const;
  // Not ready for this reason, told by /readyz; empty: ready. Changes nothing once draining.
  void set_waiting_for(std::string reason);
  // No new work from now on; for good.
  void start_draining();
  bool draining() const;

 private:
  const ServiceOptions options_;
  mutable std::mutex mutex_;  // guards all below; held for copies of a few words
  std::shared_ptr<const Backend> backend_;
  std::string waiting_for_ = "the model is being loaded";
  bool draining_ = false;
};

}  // namespace promptcached::api
