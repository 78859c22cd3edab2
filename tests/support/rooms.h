#pragma once

// Tests of the server combine rooms that may not include each other: a session with its source, a
// store and a publisher. These tests are in octavo::engine, and the using-directives below let them
// use the names of all rooms without a prefix. Only tests include this header.

namespace octavo::base {}
namespace octavo::buffer {}
namespace octavo::derive {}
namespace octavo::exports {}
namespace octavo::job {}
namespace octavo::memory {}
namespace octavo::model {}
namespace octavo::operation {}
namespace octavo::pattern {}
namespace octavo::picture {}
namespace octavo::processing {}
namespace octavo::projection {}
namespace octavo::publish {}
namespace octavo::raw_jobs {}
namespace octavo::scan {}
namespace octavo::session {}
namespace octavo::source {}
namespace octavo::tomography {}
namespace octavo::volume {}
namespace octavo::volume_import {}

namespace octavo::engine {
using namespace octavo::base;
using namespace octavo::buffer;
using namespace octavo::derive;
using namespace octavo::exports;
using namespace octavo::job;
using namespace octavo::memory;
using namespace octavo::model;
using namespace octavo::operation;
using namespace octavo::pattern;
using namespace octavo::processing;
using namespace octavo::projection;
using namespace octavo::publish;
using namespace octavo::raw_jobs;
using namespace octavo::scan;
using namespace octavo::session;
using namespace octavo::source;
using namespace octavo::tomography;
using namespace octavo::volume;
using namespace octavo::volume_import;
}  // namespace octavo::engine

namespace octavo::rpc {
using namespace octavo::picture;
}  // namespace octavo::rpc
