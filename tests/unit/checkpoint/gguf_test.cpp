// GGUF files: what they say is read, and each thing that can be wrong with one is refused by the name of the file and
// of the field, key or tensor.
#include "core/checkpoint/gguf.h"

#include <cstring>
#include <functional>
#include <limits>
#include <stdexcept>

#include "core/checkpoint/gguf_quants.h"
#include "tests/catch.h"
#include "tests/fakes/memory_file.h"
#include "tests/unit/checkpoint/gguf_builder.h"

namespace promptcached::checkpoint {
namespace {

using fakes::MemoryFile;

constexpr std::uint32_t kF32 = 0;
constexpr std::uint32_t kQ8 = 8;
constexpr std::uint32_t kIq2Xxs = 16;

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// What is thrown, which is one line; empty when nothing is.
std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const std::runtime_error& error) {
    CHECK(!contains(error.what(), "\n"));
    return error.what();
  }
  return "";
}

std::string refusal(const std::string& contents) {
  const MemoryFile file(contents);
  const std::string message = message_of([&] { GgufFile::open(file.path()); });
  CHECK((message.empty() || message.starts_with(file.path().string() + ": ")));
  return message;
}

std::string refusal(const GgufBuilder& builder) { return refusal(builder.build()); }

std::shared_ptr<const GgufFile> open(const GgufBuilder& builder) {
  const MemoryFile file(builder.build());
  return GgufFile::open(file.path());
}

GgufBuilder with_value(std::string_view key, ValueType type, const std::string& bytes) {
  return GgufBuilder().value(key, type, bytes);
}

// A file like a model's: strings, arrays, two tensors.
GgufBuilder sample() {
  GgufBuilder builder;
  builder.value("general.architecture", ValueType::kText, raw_text("llama"))
      .value("tokenizer.ggml.tokens", ValueType::kArray,
             raw_array<std::string>(ValueType::kText, {"<s>", "\xC3\xA9", "", "end"}))
      .value("llama.block_count", ValueType::kU32, raw<std::uint32_t>(2))
      .tensor("a", {4, 2}, kF32, 0)
      .tensor("b", {64}, kQ8, 32)
      .data(std::string(32 + 68, '\x01'));
  return builder;
}

}  // namespace

TEST_CASE("Metadata is read by key and type", "[checkpoint][gguf]") {
  GgufBuilder builder = sample();
  builder.value("u8", ValueType::kU8, raw<std::uint8_t>(200))
      .value("i8", ValueType::kI8, raw<std::int8_t>(-100))
      .value("u16", ValueType::kU16, raw<std::uint16_t>(60000))
      .value("i16", ValueType::kI16, raw<std::int16_t>(-30000))
      .value("i32", ValueType::kI32, raw<std::int32_t>(-2000000000))
      .value("u64", ValueType::kU64, raw(std::uint64_t{1} << 40U))
      .value("i64", ValueType::kI64, raw(std::numeric_limits<std::int64_t>::min()))
      .value("f32", ValueType::kF32, raw(0.5F))
      .value("f64", ValueType::kF64, raw(1e-300))
      .value("yes", ValueType::kBool, raw<std::uint8_t>(1))
      .value("integers", ValueType::kArray, raw_array<std::int32_t>(ValueType::kI32, {3, -4}))
      .value("numbers", ValueType::kArray, raw_array<float>(ValueType::kF32, {0.25F, -8.0F}))
      .value("booleans", ValueType::kArray, raw_array<std::uint8_t>(ValueType::kBool, {1, 0, 1}))
      .value("nothing", ValueType::kArray, raw_array<std::uint64_t>(ValueType::kU64, {}));
  const auto file = open(builder);

  CHECK(file->text("general.architecture") == "llama");
  CHECK(file->texts("tokenizer.ggml.tokens") == std::vector<std::string_view>{"<s>", "\xC3\xA9", "", "end"});
  CHECK(file->integer("llama.block_count") == 2);
  CHECK(file->integer("u8") == 200);
  CHECK(file->integer("i8") == -100);
  CHECK(file->integer("u16") == 60000);
  CHECK(file->integer("i16") == -30000);
  CHECK(file->integer("i32") == -2000000000);
  CHECK(file->integer("u64") == std::int64_t{1} << 40U);
  CHECK(file->integer("i64") == std::numeric_limits<std::int64_t>::min());
  CHECK(file->number("f32") == 0.5);
  CHECK(file->number("f64") == 1e-300);
  CHECK(file->number("i8") == -100.0);
  CHECK(file->boolean("yes") == true);
  CHECK(file->integers("integers") == std::vector<std::int64_t>{3, -4});
  CHECK(file->numbers("numbers") == std::vector<float>{0.25F, -8.0F});
  CHECK(file->numbers("integers") == std::vector<float>{3.0F, -4.0F});
  CHECK(file->booleans("booleans") == std::vector<bool>{true, false, true});
  CHECK(file->integers("nothing").empty());

  CHECK(file->has("u8"));
  CHECK(!file->has("u"));
  CHECK(file->is_array("numbers"));
  CHECK(!file->is_array("f32"));
  CHECK(!file->is_array("absent"));
  CHECK(!file->integer("absent"));
  CHECK(!file->number("absent"));
  CHECK(!file->boolean("absent"));
  CHECK(!file->text("absent"));
  CHECK(file->texts("absent").empty());
  CHECK(file->integers("absent").empty());
  CHECK(file->keys().size() == 17);
}

TEST_CASE("A metadata value of another type is refused by its key", "[checkpoint][gguf]") {
  GgufBuilder builder = sample();
  builder.value("big", ValueType::kU64, raw(std::numeric_limits<std::uint64_t>::max()))
      .value("f32", ValueType::kF32, raw(0.5F))
      .value("broken", ValueType::kText, raw_text("\xFF"))
      .value("strings", ValueType::kArray, raw_array<std::string>(ValueType::kText, {"good", "\xC0\x80"}));
  const auto file = open(builder);
  const auto said = [&](const std::function<void()>& action) {
    const std::string message = message_of(action);
    CHECK(message.starts_with(file->path().string() + ": metadata key '"));
    return message;
  };
  CHECK(contains(said([&] { file->integer("general.architecture"); }),
                 "'general.architecture' is of type string, not an integer"));
  CHECK(contains(said([&] { file->integer("f32"); }), "'f32' is of type float32, not an integer"));
  CHECK(contains(said([&] { file->number("general.architecture"); }), "not a number"));
  CHECK(contains(said([&] { file->boolean("llama.block_count"); }), "is of type uint32, not a boolean"));
  CHECK(contains(said([&] { file->text("llama.block_count"); }), "not a string"));
  CHECK(contains(said([&] { file->text("tokenizer.ggml.tokens"); }), "is an array of string, not a string"));
  CHECK(contains(said([&] { file->texts("general.architecture"); }), "is of type string, not an array of strings"));
  CHECK(contains(said([&] { file->integers("tokenizer.ggml.tokens"); }), "not an array of integers"));
  CHECK(contains(said([&] { file->numbers("tokenizer.ggml.tokens"); }), "not an array of numbers"));
  CHECK(contains(said([&] { file->booleans("tokenizer.ggml.tokens"); }), "not an array of booleans"));
  CHECK(contains(said([&] { file->integer("big"); }), "'big' holds 18446744073709551615"));
  CHECK(contains(said([&] { file->text("broken"); }), "'broken' is not valid UTF-8"));
  CHECK(contains(said([&] { file->texts("strings"); }), "'strings' is not valid UTF-8 in element 1"));
}

TEST_CASE("Tensors lie where the file says, slowest dimension first", "[checkpoint][gguf]") {
  std::string data(32 + 68, '\0');
  const float first = 3.5F;
  std::memcpy(data.data(), &first, sizeof first);
  const auto file = open(sample().data(data));
  REQUIRE(file->tensors().all().size() == 2);
  const StoredTensor* a = file->tensors().find("a");
  REQUIRE(a != nullptr);
  CHECK(a->dtype == "F32");
  CHECK(a->shape == std::vector<std::int64_t>{2, 4});
  CHECK(a->bytes.size() == 32);
  CHECK(reinterpret_cast<std::uintptr_t>(a->bytes.data()) % 32 == 0);
  CHECK(std::memcmp(a->bytes.data(), &first, sizeof first) == 0);
  CHECK(file->tensors().find("b")->dtype == "Q8_0");
  CHECK(file->tensors().find("b")->bytes.size() == 68);
  CHECK(file->tensors().source() == file->path());
  CHECK(open(GgufBuilder())->tensors().all().empty());
}

TEST_CASE("A GGUF file is known by its magic", "[checkpoint][gguf]") {
  CHECK(is_gguf(MemoryFile(sample().build()).path()));
  CHECK(!is_gguf(MemoryFile("GGU").path()));
  CHECK(!is_gguf(MemoryFile("{\"a\":1}").path()));
  CHECK(!is_gguf("/nowhere"));
  CHECK(!is_gguf("/proc/self"));
}

TEST_CASE("S29: a GGUF file that is cut anywhere is refused", "[checkpoint][gguf]") {
  const std::string whole = sample().build();
  CHECK(refusal(whole).empty());
  for (std::size_t size = 0; size < whole.size(); ++size) {
    INFO(size << " of " << whole.size());
    const std::string message = refusal(whole.substr(0, size));
    CHECK((contains(message, "truncated") || contains(message, "remaining")));
  }
  for (const std::size_t percent : {10, 50, 99}) {
    CHECK(!refusal(whole.substr(0, whole.size() * percent / 100)).empty());
  }
  CHECK(contains(refusal(whole.substr(0, whole.size() - 1)), "tensor 'b' lies outside the file, which is truncated"));
}

TEST_CASE("S29: magic, version and counts of a GGUF file", "[checkpoint][gguf]") {
  const auto changed = [](const std::function<void(GgufBuilder&)>& change) {
    GgufBuilder builder = sample();
    change(builder);
    return refusal(builder);
  };
  CHECK(contains(changed([](GgufBuilder& b) { b.magic = "GGML"; }), "'magic' is not 'GGUF'"));
  CHECK(contains(changed([](GgufBuilder& b) { b.version = 99; }), "'version' is 99"));
  CHECK(contains(changed([](GgufBuilder& b) { b.version = 2; }), "'version' is 2"));
  CHECK(contains(changed([](GgufBuilder& b) { b.version = 0x03000000; }), "big-endian"));
  CHECK(contains(changed([](GgufBuilder& b) { b.extra_tensors = std::uint64_t{1} << 60U; }),
                 "'tensor_count' is 1152921504606846978"));
  CHECK(contains(changed([](GgufBuilder& b) { b.extra_metadata = std::uint64_t{1} << 60U; }),
                 "'metadata_kv_count' is 1152921504606846979"));
  CHECK(contains(changed([](GgufBuilder& b) { b.extra_metadata = std::uint64_t{0} - 4; }),
                 "'metadata_kv_count' is 18446744073709551615"));
  CHECK(!changed([](GgufBuilder& b) { b.extra_tensors = 1; }).empty());
  CHECK(!changed([](GgufBuilder& b) { b.extra_metadata = 1; }).empty());
}

TEST_CASE("S29: metadata of a GGUF file", "[checkpoint][gguf]") {
  SECTION("37 bytes with an empty key") {
    const std::string file = with_value("", ValueType::kU8, "\x07").build().substr(0, 37);
    CHECK(contains(refusal(file), "metadata key 1 of 1 has an empty name"));
  }
  SECTION("keys") {
    CHECK(contains(refusal(with_value(std::string(70000, 'k'), ValueType::kU8, "\x07")), "a name of 70000 bytes"));
    CHECK(refusal(with_value(std::string(60000, 'k'), ValueType::kBool, "\x07")).size() < 250);
    CHECK(contains(refusal(with_value("a\nb", ValueType::kU8, "\x07")), "not printable ASCII"));
    CHECK(contains(refusal(sample().value("llama.block_count", ValueType::kU8, "\x07")),
                   "'llama.block_count' appears twice"));
    CHECK(contains(refusal(sample().value("", ValueType::kU8, "\x07")),
                   "metadata key 4 of 4 (after key 'llama.block_count') has an empty name"));
  }
  SECTION("value types") {
    CHECK(contains(refusal(with_value("k", ValueType{13}, std::string(64, '\0'))), "'k' has unknown value type 13"));
    CHECK(contains(refusal(with_value("k", ValueType::kArray, raw_array<std::uint8_t>(ValueType{13}, {1}))),
                   "'k' is an array of unknown value type 13"));
    CHECK(contains(refusal(with_value("k", ValueType::kArray, raw_array<std::uint64_t>(ValueType::kArray, {1}))),
                   "'k' is an array of arrays"));
    CHECK(contains(refusal(with_value("k", ValueType::kBool, "\x02")), "'k' holds a boolean that is 2"));
    CHECK(contains(refusal(with_value("k", ValueType::kArray, raw_array<std::uint8_t>(ValueType::kBool, {0, 255}))),
                   "'k' holds a boolean that is 255"));
  }
  SECTION("lengths") {
    const std::string huge = raw(std::uint64_t{1} << 60U);
    CHECK(contains(refusal(with_value("k", ValueType::kText, huge)), "'k' is truncated"));
    for (const ValueType type : {ValueType::kU8, ValueType::kText, ValueType::kF64, ValueType::kBool}) {
      CHECK(contains(refusal(with_value("k", ValueType::kArray, raw_type(type) + huge)), "'k' is truncated"));
    }
    const std::string all = raw(std::numeric_limits<std::uint64_t>::max());
    CHECK(contains(refusal(with_value("k", ValueType::kText, all)), "'k' is truncated"));
    CHECK(contains(refusal(with_value("k", ValueType::kArray, raw_type(ValueType::kI16) + all)), "'k' is truncated"));
    CHECK(
        contains(refusal(with_value("k", ValueType::kArray, raw_type(ValueType::kText) + raw<std::uint64_t>(1) + all)),
                 "'k' is truncated"));
  }
  SECTION("an array whose element type disagrees with its bytes") {
    const std::string strings = raw_array<std::string>(ValueType::kText, {"one", "two", "three"});
    for (const ValueType claimed : {ValueType::kU8, ValueType::kI32, ValueType::kF64}) {
      GgufBuilder builder = with_value("words", ValueType::kArray, raw_type(claimed) + strings.substr(4));
      builder.value("next", ValueType::kU8, "\x07").tensor("a", {4, 2}, kF32, 0).data(std::string(32, '\0'));
      CHECK(contains(refusal(builder), "'words'"));
    }
    const std::string numbers = raw_array<std::int32_t>(ValueType::kI32, {1, 2, 3});
    GgufBuilder builder = with_value("numbers", ValueType::kArray, raw_type(ValueType::kText) + numbers.substr(4));
    CHECK(contains(refusal(builder.value("next", ValueType::kU8, "\x07")), "'numbers'"));
  }
  SECTION("alignment") {
    for (const std::uint32_t alignment : {0U, 1U, 4U, 24U, 0xFFFFFFFFU}) {
      CHECK(contains(refusal(with_value("general.alignment", ValueType::kU32, raw(alignment))),
                     "'general.alignment' is " + std::to_string(alignment)));
    }
    CHECK(contains(refusal(with_value("general.alignment", ValueType::kU64, raw<std::uint64_t>(32))),
                   "'general.alignment' is not of type uint32"));
    GgufBuilder builder = with_value("general.alignment", ValueType::kU32, raw<std::uint32_t>(8));
    builder.alignment = 8;
    builder.tensor("a", {2}, kF32, 0).tensor("b", {2}, kF32, 8).data(std::string(16, '\0'));
    CHECK(open(builder)->tensors().all().size() == 2);
    CHECK(!refusal(with_value("general.alignment", ValueType::kU32, raw<std::uint32_t>(1U << 31U))
                       .tensor("a", {2}, kF32, 0)
                       .data(std::string(8, '\0')))
               .empty());
  }
}

TEST_CASE("S29: tensors of a GGUF file", "[checkpoint][gguf]") {
  const auto described = [](const std::string& name, const std::vector<std::uint64_t>& dimensions, std::uint32_t type,
                            std::uint64_t offset) {
    return refusal(GgufBuilder().tensor(name, dimensions, type, offset).data(std::string(64, '\0')));
  };
  CHECK(described("x", {4, 4}, kF32, 0).empty());
  CHECK(described(std::string(64, 'n'), {4, 4}, kF32, 0).empty());
  SECTION("names") {
    CHECK(contains(described("", {4}, kF32, 0), "tensor 1 of 1 has an empty name"));
    CHECK(contains(described(std::string(65, 'n'), {4}, kF32, 0), "a name of 65 bytes"));
    CHECK(contains(described("x\x1B[2J", {4}, kF32, 0), "not printable ASCII"));
    CHECK(contains(refusal(sample().tensor("a", {4}, kF32, 0)), "tensor 'a' appears twice"));
  }
  SECTION("dimensions") {
    CHECK(contains(described("x", {}, kF32, 0), "has 0 dimensions"));
    CHECK(contains(described("x", {1, 1, 1, 1, 1}, kF32, 0), "has 5 dimensions"));
    CHECK(contains(described("x", {4, 0}, kF32, 0), "'x' has a dimension of 0"));
    CHECK(contains(described("x", {std::uint64_t{1} << 63U}, kF32, 0), "a dimension of 9223372036854775808"));
    CHECK(contains(described("x", {std::uint64_t{1} << 62U}, kF32, 0), "more than 64 bits"));
    CHECK(contains(described("x", {std::uint64_t{1} << 32U, std::uint64_t{1} << 32U}, kF32, 0), "more than 64 bits"));
    CHECK(contains(described("x", {32, std::uint64_t{1} << 58U}, kQ8, 0), "more than 64 bits"));
    CHECK(contains(described("x", {33}, kQ8, 0), "rows of 33 elements"));
    CHECK(contains(described("x", {16, 2}, kQ8, 0), "rows of 16 elements, which are not whole blocks of Q8_0 (32)"));
  }
  SECTION("formats") {
    CHECK(contains(described("x", {256}, kIq2Xxs, 0),
                   "tensor 'x' has type IQ2_XXS, which is not supported; known: F32, F16, BF16, Q8_0, Q4_0"));
    CHECK(contains(described("x", {256}, 4096, 0), "tensor 'x' has type 4096, which is not supported"));
  }
  SECTION("places") {
    CHECK(contains(described("x", {4}, kF32, 4), "'x' has offset 4, which is not a multiple of the alignment, 32"));
    CHECK(contains(described("x", {4}, kF32, 64), "'x' lies outside the file, which is truncated"));
    CHECK(contains(described("x", {4}, kF32, 1U << 20U), "'x' lies outside the file"));
    CHECK(contains(described("x", {4}, kF32, std::uint64_t{0} - 32), "'x' lies outside the file"));
    CHECK(contains(described("x", {17}, kF32, 0), "'x' lies outside the file"));
    CHECK(contains(described("x", {std::uint64_t{1} << 60U}, kF32, 0), "'x' lies outside the file"));
    CHECK(contains(refusal(GgufBuilder().tensor("x", {4}, kF32, 0)), "'x' lies outside the file"));
    GgufBuilder overlap;
    overlap.tensor("later", {8}, kF32, 32).tensor("early", {16}, kF32, 0).data(std::string(64, '\0'));
    CHECK(contains(refusal(overlap), "tensor 'later' overlaps tensor 'early'"));
    GgufBuilder same;
    same.tensor("x", {4}, kF32, 0).tensor("y", {4}, kF32, 0).data(std::string(64, '\0'));
    CHECK(contains(refusal(same), "overlaps"));
  }
}

}  // namespace promptcached::checkpoint
