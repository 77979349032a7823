import { describeStore } from '../support/rag/conformance.ts'
import { openEngine } from '../support/rag/stores.ts'

describeStore('the engine', openEngine)
