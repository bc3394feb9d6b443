// The rows of the table. Each family has a file of its own.
#pragma once

#include "core/model/architectures/architecture.h"

namespace promptcached::model {

extern const Architecture kLlama;
extern const Architecture kMistral;
extern const Architecture kQwen2;
extern const Architecture kQwen3;
extern const Architecture kGemma;
extern const Architecture kGemma2;
extern const Architecture kGemma3;
extern const Architecture kPhi3;
extern const Architecture kOpt;
extern const Architecture kFalcon;
extern const Architecture kMpt;
extern const Architecture kMptHf;
extern const Architecture kGpt2;
extern const Architecture kGptNeoX;
extern const Architecture kBloom;
extern const Architecture kStarcoder2;

}  // namespace promptcached::model
