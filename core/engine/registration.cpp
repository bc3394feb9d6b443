#include "core/engine/registration.h"

#include <optional>
#include <utility>

namespace promptcached::engine {

Registration::Registration(std::shared_ptr<const SchemaVersion> version, ModuleEncoder& encoder, Done done)
    : version_(std::move(version)), encoder_(encoder), done_(std::move(done)) {}

void Registration::start() {
  self_ = shared_from_this();
  advance();
}

void Registration::abandon(const Error& error) { end(error); }

// Asks for one entry after another, in the passes' order, until one has to be waited for.
void Registration::advance() {
  const pml::Schema& schema = *version_->schema;
  for (; next_pass_ < schema.passes.size(); ++next_pass_, next_entry_ = 0) {
    const std::vector<pml::EntryIndex>& entries = schema.passes[next_pass_].entries;
    while (next_entry_ < entries.size()) {
      const pml::EntryIndex index = entries[next_entry_++];
      const pml::ModuleIndex module = schema.entries[static_cast<std::size_t>(index)].module;
      if (!schema.modules[static_cast<std::size_t>(module)].cache) {
        continue;  // computed with each request
      }
      if (!encoder_.is_used(version_->keys[static_cast<std::size_t>(index)])) {
        end({});  // overtaken or deleted: nobody would use the rest, and the schema store tells who asked for it
        return;
      }
      ModuleEncoder::Want want;
      want.version = version_;
      want.entry = index;
      want.background = true;
      want.owner = weak_from_this();
      want.ready = [this](Result<AcquiredModule> acquired) {  // called only while this lives
        const Status status = acquired.ok() ? Status() : Status(acquired.error());
        acquired = AcquiredModule();  // registration keeps nothing in place
        status.ok() ? advance() : end(status);
      };
      if (!encoder_.acquire(std::move(want)).has_value()) {
        return;
      }
    }
  }
  end({});
}

void Registration::end(const Status& status) {
  const std::shared_ptr<Registration> alive = std::move(self_);
  if (const Done done = std::exchange(done_, nullptr)) {
    done(status);
  }
}

}  // namespace promptcached::engine
