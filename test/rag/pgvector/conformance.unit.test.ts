import { describeStore } from '../../support/rag/conformance.ts'
import { describePgvector, openPgvector, openPgvectorServer } from '../../support/rag/pgvector.ts'

describePgvector('pgvector', () => {
  describeStore('the engine', openPgvector)
  describeStore('the server, by TLS', openPgvectorServer)
})
