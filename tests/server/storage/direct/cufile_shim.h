#pragma once

// The library of cufile_shim.cc, as tests drive it.

#include <dlfcn.h>
#include <string>

#include "gtest/gtest.h"

#include "server/storage/direct/cufile.h"

namespace octavo::testing {

/// A library that stands in for cuFile: reads by pread into host or device memory, and misbehaves
/// as asked.
class CuFileShim {
 public:
  CuFileShim() {
    // CuFile keeps it loaded; its state is this process'.
    void* const library = ::dlopen(OCTAVO_CUFILE_SHIM, RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(library, nullptr) << ::dlerror();
    set_ = reinterpret_cast<void (*)(const char*, long)>(::dlsym(library, "octavo_shim_set"));
    get_ = reinterpret_cast<long (*)(const char*)>(::dlsym(library, "octavo_shim_get"));
    Set("reset", 0);
  }
  ~CuFileShim() { Set("reset", 0); }
  CuFileShim(const CuFileShim&) = delete;

  void Set(const char* what, long value) const { set_(what, value); }
  long Get(const char* what) const { return get_(what); }
  static storage::CuFile::Options Options() {
    return {.library = OCTAVO_CUFILE_SHIM, .check_host = false};
  }

 private:
  void (*set_)(const char*, long) = nullptr;
  long (*get_)(const char*) = nullptr;
};

}  // namespace octavo::testing
