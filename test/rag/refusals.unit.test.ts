import { describeBounds, describeRefusals } from '../support/rag/refusals.ts'
import { openServer } from '../support/rag/servers.ts'
import { openEngine } from '../support/rag/stores.ts'

describeRefusals('the engine', openEngine)
describeRefusals('the server', openServer)
describeBounds('a full store', openEngine)
