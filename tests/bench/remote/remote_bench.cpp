// How fast a large value goes to a remote store and comes back, beside the raw client on the same server, turn by turn.
//
//   ninja bench_remote && build/bench_remote redis://127.0.0.1:6379 [MIB [ROUNDS]]
#include <hiredis/hiredis.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/kv/tiers/remote_store.h"

namespace {

using promptcached::kv::RemoteStore;

// The middle of some durations, in milliseconds.
class Timings final {
 public:
  template <typename Work>
  void take(Work work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    milliseconds_.push_back(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  double median() {
    std::sort(milliseconds_.begin(), milliseconds_.end());
    return milliseconds_[milliseconds_.size() / 2];
  }

 private:
  std::vector<double> milliseconds_;
};

[[noreturn]] void fail(const std::string& message) {
  std::fprintf(stderr, "%s\n", message.c_str());
  std::exit(1);
}

redisContext* connect_hiredis(const std::string& uri) {
  const std::string host = uri.substr(8, uri.find_last_of(':') - 8);
  redisContext* const context = redisConnect(host.c_str(), std::atoi(uri.substr(uri.find_last_of(':') + 1).c_str()));
  if (context == nullptr || context->err != 0) {
    fail("hiredis does not connect");
  }
  return context;
}

void ask_hiredis(redisContext* context, const std::vector<const char*>& words, const std::vector<std::size_t>& sizes) {
  auto* const reply = static_cast<redisReply*>(
      redisCommandArgv(context, static_cast<int>(words.size()), const_cast<const char**>(words.data()), sizes.data()));
  if (reply == nullptr || reply->type == REDIS_REPLY_ERROR) {
    fail("hiredis has no answer");
  }
  freeReplyObject(reply);
}

void report(const char* what, Timings& write, Timings& read, double mib) {
  std::printf("%-12s write %7.1f ms %6.0f MiB/s   read %7.1f ms %6.0f MiB/s\n", what, write.median(),
              1000 * mib / write.median(), read.median(), 1000 * mib / read.median());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    fail("usage: bench_remote URI [MIB [ROUNDS]]");
  }
  const std::string uri = argv[1];
  const std::size_t mib = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 64;
  const int rounds = argc > 3 ? std::atoi(argv[3]) : 15;
  const std::vector<std::byte> value(mib << 20, std::byte{42});
  auto store = RemoteStore::open({.uri = uri, .timeout = std::chrono::seconds(30)});
  if (!store.ok()) {
    fail(store.error().message);
  }
  redisContext* const raw = uri.starts_with("redis://") ? connect_hiredis(uri) : nullptr;
  Timings write, read, raw_write, raw_read;
  for (int round = 0; round < rounds; ++round) {
    write.take([&] {
      if (const auto status = (*store)->write("bench", value); !status.ok()) {
        fail(status.error().message);
      }
    });
    read.take([&] {
      const auto found = (*store)->read("bench");
      if (!found.ok() || !found->has_value() || (*found)->bytes().size() != value.size()) {
        fail(found.ok() ? "the value is not there" : found.error().message);
      }
    });
    if (raw != nullptr) {
      const char* const bytes = reinterpret_cast<const char*>(value.data());
      raw_write.take([&] { ask_hiredis(raw, {"SET", "raw", bytes}, {3, 3, value.size()}); });
      raw_read.take([&] { ask_hiredis(raw, {"GET", "raw"}, {3, 3}); });
    }
  }
  report("RemoteStore", write, read, static_cast<double>(mib));
  if (raw != nullptr) {
    report("hiredis", raw_write, raw_read, static_cast<double>(mib));
  }
}
