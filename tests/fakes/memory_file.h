// MemoryFile: bytes at a path, for code that takes files by their path, and no disk.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>

namespace promptcached::fakes {

class MemoryFile final {
 public:
  explicit MemoryFile(std::string_view contents) : descriptor_(::memfd_create("memory_file", MFD_CLOEXEC)) {
    for (std::size_t written = 0; written < contents.size();) {
      const ssize_t count = ::write(descriptor_, contents.data() + written, contents.size() - written);
      if (count <= 0) {
        throw std::runtime_error("cannot write a file in memory");
      }
      written += static_cast<std::size_t>(count);
    }
  }
  ~MemoryFile() { ::close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  // Valid in this process, for as long as the object lives.
  std::filesystem::path path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

}  // namespace promptcached::fakes
