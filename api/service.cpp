#include "api/service.h"

#include <utility>

namespace promptcached::api {

std::shared_ptr<const Backend> Service::backend() const {
  const std::lock_guard lock(mutex_);
  return backend_;
}

void Service::set_backend(std::shared_ptr<const Backend> backend) {
  const std::lock_guard lock(mutex_);
  backend_ = std::move(backend);
}

Readiness Service::readiness() const {
  const std::lock_guard lock(mutex_);
  if (draining_) {
    return {false, make_error(ErrorCode::kDraining, "the server is shutting down")};
  }
  if (!waiting_for_.empty()) {
    return {false, make_error(ErrorCode::kNotReady, "not ready: " + waiting_for_)};
  }
  return {true, {}};
}

void Service::set_waiting_for(std::string reason) {
  const std::lock_guard lock(mutex_);
  waiting_for_ = std::move(reason);
}

void Service::start_draining() {
  const std::lock_guard lock(mutex_);
  draining_ = true;
}

bool Service::draining() const {
  const std::lock_guard lock(mutex_);
  return draining_;
}

}  // namespace promptcached::api
