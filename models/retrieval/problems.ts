import { InvalidInput, Problem, TooManyRequests, Unavailable } from '../../lib/problem.ts'
import { ModelFailed } from './embeddings.ts'
import { StoreError } from './store-rules.ts'

// What the store and the model gateway refuse, as the API says it.

/** Runs what checks the fields of a request by the rules of stores. Throws InvalidInput. */
export function checked(check: () => void): void {
  try {
    check()
  } catch (error) {
    throw problemOf(error)
  }
}

/** Runs what asks the store or the model gateway. Throws Problem. */
export async function answered<T>(asking: Promise<T>): Promise<T> {
  try {
    return await asking
  } catch (error) {
    throw problemOf(error)
  }
}

const problemOf = (error: unknown): unknown => {
  if (error instanceof StoreError) return ofStore(error)
  if (error instanceof ModelFailed) return ofEmbedding(error)
  // Of a signal.
  if (error instanceof DOMException && error.name === 'TimeoutError') return noEmbedder(error)
  return error
}

function ofStore(error: StoreError): Problem {
  const { code, message, pointer, status } = error
  if (status === 422) return new InvalidInput(422, [{ pointer: pointer ?? '', message }])
  // Of the rest, what the caller can do something about: the store is full, or was restored without the collection.
  if (status === 404 || status === 409 || status === 507)
    return new Problem(409, code, 'The store refuses the request', message)
  return new Unavailable('The store does not answer: try again', error)
}

function ofEmbedding(error: ModelFailed): Problem {
  const { code, message, permanent, status } = error
  if (code === 'text_too_long')
    return new InvalidInput(422, [
      { pointer: '/query', message: 'is longer than the embedder reads: shorten it, or search by `text`' },
    ])
  if (status === 429) return new TooManyRequests(1)
  if (permanent) return new Problem(status === 403 ? 403 : 409, code, 'The model cannot be called', message)
  return noEmbedder(error)
}

const noEmbedder = (cause: unknown) => new Unavailable('The embedder does not answer: try again', cause)
