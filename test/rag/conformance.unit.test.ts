import { describeStore } from '../support/rag/conformance.ts'
import { openServer } from '../support/rag/servers.ts'
import { openEngine } from '../support/rag/stores.ts'

describeStore('the engine', openEngine)
describeStore('the server, by TLS', openServer)
