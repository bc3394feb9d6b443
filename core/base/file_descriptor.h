// FileDescriptor: owns an open descriptor.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <utility>

namespace promptcached {

class FileDescriptor final {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void reset() {
    if (fd_ >= 0) {
      ::close(fd_);
      fd_ = -1;
    }
  }

 private:
  int fd_ = -1;
};

// Makes the file if it is not there, and locks it for this process as long as the descriptor lives. Empty, with errno
// set, when that cannot be: EWOULDBLOCK says that another process has it.
FileDescriptor lock_file(const std::filesystem::path& path, int mode);

}  // namespace promptcached
