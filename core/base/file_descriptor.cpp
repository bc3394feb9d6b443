#include "core/base/file_descriptor.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>

namespace promptcached {

FileDescriptor lock_file(const std::filesystem::path& path, int mode) {
  FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, mode));
  if (file && ::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    file.reset();
    errno = error;
  }
  return file;
}

}  // namespace promptcached
