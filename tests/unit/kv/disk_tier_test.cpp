#include "core/kv/tiers/disk_tier.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "core/kv/tiers/host_tier.h"
#include "tests/catch.h"
#include "tests/unit/kv/tier_fixture.h"

namespace promptcached::kv {
namespace {

namespace fs = std::filesystem;

struct DiskFixture {
  std::unique_ptr<DiskTier> open(std::size_t capacity = std::size_t{64} << 20,
                                 const RecordIdentity& identity = identity_of()) {
    DiskTier::Options options;
    options.directory = directory.path() / "kv";
    options.capacity_bytes = capacity;
    options.identity = identity;
    options.on_evict = [this] { ++evicted; };
    options.on_corrupt = [this] { ++corrupt; };
    options.on_error = [this] { ++errors; };
    Result<std::unique_ptr<DiskTier>> tier = DiskTier::open(options);
    REQUIRE(tier.ok());
    return std::move(tier).value();
  }
  fs::path file_of(int number) const { return directory.path() / "kv/modules" / (key_of(number).hex() + ".kv"); }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(directory.path() / "kv/modules"), {}));
  }

  TemporaryDirectory directory;
  int evicted = 0;
  int corrupt = 0;
  int errors = 0;
};

void flip_byte(const fs::path& file, std::streamoff at) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(at);
  const int byte = stream.get();
  stream.seekp(at);
  stream.put(static_cast<char>(byte ^ 0x10));
}

TEST_CASE("a record comes back from disk as it was, also after a restart", "[kv]") {
  DiskFixture fixture;
  for (const KvCodec codec : {KvCodec{}, KvCodec{KvCodec::Form::kRaw, KvCodec::Compression::kZstd}}) {
    const int number = codec.compression == KvCodec::Compression::kNone ? 1 : 2;
    MemorySource source(number, 50, identity_of(), codec);
    {
      const auto tier = fixture.open();
      CHECK(tier->store(source) == StoreOutcome::kStored);
      CHECK(tier->store(source) == StoreOutcome::kStored);  // there already
      Target target(source);
      CHECK(tier->load(target.sink) == LoadOutcome::kLoaded);
      CHECK(target.data == source.data());
    }
    const auto tier = fixture.open();
    CHECK(tier->has(key_of(number)));
    Target target(source);
    CHECK(tier->load(target.sink) == LoadOutcome::kLoaded);
    CHECK(target.data == source.data());
  }
  CHECK(fixture.open()->stats().entries == 2);
  CHECK(fixture.corrupt == 0);
}

TEST_CASE("a record that is cut short, changed or renamed is a miss, and goes", "[kv]") {
  DiskFixture fixture;
  MemorySource source(1, 50);
  const auto spoil = GENERATE(0, 1, 2, 3, 4);
  const bool before_start = GENERATE(true, false);
  auto tier = fixture.open();
  REQUIRE(tier->store(source) == StoreOutcome::kStored);
  if (before_start) {
    tier.reset();
  }
  const fs::path file = fixture.file_of(1);
  const auto size = static_cast<std::streamoff>(fs::file_size(file));
  switch (spoil) {
    case 0:
      fs::resize_file(file, static_cast<std::uintmax_t>(size - 1));
      break;
    case 1:
      fs::resize_file(file, 100);
      break;
    case 2:
      flip_byte(file, 60);  // in the header
      break;
    case 3:
      flip_byte(file, size - 3);  // in the payload: found when it is read
      break;
    case 4: {  // another module's record under this name
      MemorySource other(2, 50);
      auto elsewhere = DiskFixture();
      REQUIRE(elsewhere.open()->store(other) == StoreOutcome::kStored);
      fs::copy_file(elsewhere.file_of(2), file, fs::copy_options::overwrite_existing);
      break;
    }
    default:
      break;
  }
  if (before_start) {
    tier = fixture.open();
  }
  Target target(source);
  const LoadOutcome outcome = tier->load(target.sink);
  const bool found_at_start = before_start && spoil != 3;
  CHECK(fixture.corrupt == (found_at_start ? 1 : 0));
  CHECK(outcome == (found_at_start ? LoadOutcome::kMissing : LoadOutcome::kDamaged));
  CHECK_FALSE(tier->has(key_of(1)));
  CHECK_FALSE(fs::exists(file));
  // The place is free for a good one.
  CHECK(tier->store(source) == StoreOutcome::kStored);
  CHECK(tier->load(target.sink) == LoadOutcome::kLoaded);
  CHECK(target.data == source.data());
}

TEST_CASE("records of another model, dtype or version are removed at the start", "[kv]") {
  DiskFixture fixture;
  MemorySource source(1, 50);
  REQUIRE(fixture.open()->store(source) == StoreOutcome::kStored);
  SECTION("another model") { CHECK(fixture.open(1 << 20, identity_of(kTinyGeometry, 2))->stats().entries == 0); }
  SECTION("another dtype") {
    KvGeometry other = kTinyGeometry;
    other.format = kernels::KvFormat::kFp16;
    CHECK(fixture.open(1 << 20, identity_of(other))->stats().entries == 0);
  }
  SECTION("another version") {
    flip_byte(fixture.file_of(1), 8);
    CHECK(fixture.open()->stats().entries == 0);
  }
  CHECK(fixture.corrupt == 1);
  CHECK(fixture.files() == 0);
}

TEST_CASE("what a writer left half done is never seen, and swept up", "[kv]") {
  DiskFixture fixture;
  auto tier = fixture.open();
  MemorySource source(1, 50);
  source.before_plane = [&](std::int32_t index) {
    if (index == 2) {
      CHECK_FALSE(tier->has(key_of(1)));
      CHECK_FALSE(fs::exists(fixture.file_of(1)));
    }
  };
  REQUIRE(tier->store(source) == StoreOutcome::kStored);
  tier.reset();
  std::ofstream(fixture.directory.path() / "kv/modules" / (key_of(3).hex() + ".9.tmp")) << "half";
  std::ofstream(fixture.directory.path() / "kv/modules" / "notes.txt") << "not ours";
  tier = fixture.open();
  CHECK(tier->stats().entries == 1);
  CHECK(fixture.files() == 2);
  CHECK(fixture.corrupt == 0);
}

TEST_CASE("the least recently used make room on disk, pinned ones stay", "[kv]") {
  DiskFixture fixture;
  MemorySource first(1, 50);
  MemorySource second(2, 50);
  MemorySource third(3, 50);
  const std::size_t each = record_header_bytes(kTinyGeometry.planes()) + first.data().size();
  auto tier = fixture.open(2 * each);
  first.mutable_header().retention.pin = true;
  CHECK(tier->store(first) == StoreOutcome::kStored);
  CHECK(tier->store(second) == StoreOutcome::kStored);
  CHECK(tier->store(third) == StoreOutcome::kStored);
  CHECK(tier->has(key_of(1)));
  CHECK_FALSE(tier->has(key_of(2)));
  CHECK(tier->has(key_of(3)));
  CHECK(fixture.evicted == 1);
  CHECK(tier->stats().used_bytes == 2 * each);
  CHECK(tier->stats().pinned_bytes == each);
  MemorySource large(4, 120);
  CHECK(tier->store(large) == StoreOutcome::kNoRoom);
  CHECK(tier->has(key_of(3)));  // nothing went in vain
  // A smaller budget at the next start.
  tier.reset();
  CHECK(fixture.open(each)->stats().entries == 1);
}

TEST_CASE("ttl counts from the last use, over a restart", "[kv]") {
  DiskFixture fixture;
  MemorySource old(1, 50);
  old.mutable_header().retention.ttl = std::chrono::seconds(100);
  old.mutable_header().last_use -= std::chrono::seconds(200);
  MemorySource fresh(2, 50);
  fresh.mutable_header().retention.ttl = std::chrono::seconds(100);
  auto tier = fixture.open();
  CHECK(tier->store(old) == StoreOutcome::kStored);
  CHECK(tier->store(fresh) == StoreOutcome::kStored);
  CHECK(tier->expired() == std::vector{key_of(1)});
  Target target(old);
  CHECK(tier->load(target.sink) == LoadOutcome::kMissing);
  tier->touch(key_of(1));
  CHECK(tier->expired().empty());
  CHECK(tier->load(target.sink) == LoadOutcome::kLoaded);
}

TEST_CASE("a second server on the same directory is refused", "[kv]") {
  DiskFixture fixture;
  const auto tier = fixture.open();
  DiskTier::Options options;
  options.directory = fixture.directory.path() / "kv";
  options.identity = identity_of();
  const auto second = DiskTier::open(options);
  REQUIRE_FALSE(second.ok());
  CHECK(second.error().message.find("another process") != std::string::npos);
  options.directory = "/proc/nowhere";
  CHECK_FALSE(DiskTier::open(options).ok());
}

// RLIMIT_FSIZE makes write fail with EFBIG, the same way in which a full disk makes it fail with ENOSPC.
TEST_CASE("a disk that takes no more is a failure to store, and leaves nothing behind", "[kv]") {
  DiskFixture fixture;
  const auto tier = fixture.open();
  MemorySource source(1, 200);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{4096 + 1000, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const StoreOutcome outcome = tier->store(source);
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, old_handler);
  CHECK(outcome == StoreOutcome::kFailed);
  CHECK(fixture.files() == 0);
  CHECK(tier->stats().used_bytes == 0);
  CHECK(tier->store(source) == StoreOutcome::kStored);
}

TEST_CASE("ten thousand records are found again in less than two seconds", "[kv][.slow]") {
  DiskFixture fixture;
  auto tier = fixture.open(std::size_t{1} << 30);
  for (int i = 0; i < 10'000; ++i) {
    MemorySource source(i + 1, 4);
    REQUIRE(tier->store(source) == StoreOutcome::kStored);
  }
  tier.reset();
  const auto began = std::chrono::steady_clock::now();
  CHECK(fixture.open(std::size_t{1} << 30)->stats().entries == 10'000);
  const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  WARN("10,000 records found in " << took << " s");
  CHECK(took < 2);
}

TEST_CASE("the host tier moves a record out, and offers what goes to others", "[kv]") {
  std::vector<ModuleKey> offered;
  HostTier::Options options;
  MemorySource first(1, 50);
  options.capacity_bytes = 2 * first.data().size();
  options.on_evict = [&](RecordSource& source) { offered.push_back(source.header().key); };
  auto log = std::make_shared<AllocatorLog>();
  {
    HostTier tier(options, std::make_unique<CountingAllocator>(log));
    MemorySource second(2, 50);
    MemorySource third(3, 50);
    CHECK(tier.store(first) == StoreOutcome::kStored);
    CHECK(tier.store(second) == StoreOutcome::kStored);
    CHECK(tier.store(third) == StoreOutcome::kStored);
    CHECK(offered == std::vector{key_of(1)});
    CHECK(tier.stats().used_bytes == log->live_bytes());
    Target target(second);
    CHECK(tier.load(target.sink) == LoadOutcome::kLoaded);
    CHECK(target.data == second.data());
    CHECK_FALSE(tier.has(key_of(2)));
    CHECK(tier.load(target.sink) == LoadOutcome::kMissing);
    MemorySource large(4, 120);
    CHECK(tier.store(large) == StoreOutcome::kNoRoom);
    CHECK(tier.drop_unpinned() == third.data().size());
    CHECK(log->live_bytes() == 0);
  }
  CHECK(log->faults == 0);
}

TEST_CASE("compressed records take the host memory they need", "[kv]") {
  HostTier::Options options;
  options.capacity_bytes = std::size_t{1} << 20;
  auto log = std::make_shared<AllocatorLog>();
  HostTier tier(options, std::make_unique<CountingAllocator>(log));
  MemorySource source(1, 64, identity_of(), {KvCodec::Form::kInt8, KvCodec::Compression::kZstd});
  CHECK(tier.store(source) == StoreOutcome::kStored);
  CHECK(tier.stats().used_bytes == log->live_bytes());
  CHECK(tier.stats().used_bytes < source.data().size());
}

}  // namespace
}  // namespace promptcached::kv
