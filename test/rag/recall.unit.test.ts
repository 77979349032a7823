import { describeRecall } from '../support/rag/recall.ts'
import { openEngine } from '../support/rag/stores.ts'

describeRecall('the scan of sign codes', openEngine)
