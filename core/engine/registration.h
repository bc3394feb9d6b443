// Registration: the encoding of every module of a newly registered schema, pass by pass, as background work.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "core/base/status.h"
#include "core/engine/module_encoder.h"
#include "core/engine/schema_version.h"

namespace promptcached::engine {

// Keeps no pins: with a budget smaller than the schema, later modules evict earlier ones, and those are encoded again
// when a prompt asks for them.
class Registration final : public std::enable_shared_from_this<Registration> {
 public:
  using Done = std::function<void(Status)>;

  Registration(std::shared_ptr<const SchemaVersion> version, ModuleEncoder& encoder, Done done);

  void start();                      // engine thread
  void abandon(const Error& error);  // instead of start()

 private:
  void advance();
  void end(const Status& status);

  std::shared_ptr<const SchemaVersion> version_;
  ModuleEncoder& encoder_;
  Done done_;
  std::shared_ptr<Registration> self_;  // alive while it waits for the encoder
  std::size_t next_pass_ = 0;
  std::size_t next_entry_ = 0;
};

}  // namespace promptcached::engine
