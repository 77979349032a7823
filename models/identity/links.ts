// The base URLs of links in mails. The role that writes mails sets them once.

interface Urls {
  api: string
  console: string
}
let urls: Urls | undefined

export function useLinks(settings: {
  KEELSON_API_URL: string
  KEELSON_CONSOLE_URL?: string | undefined
}): void {
  urls = {
    api: settings.KEELSON_API_URL,
    console: settings.KEELSON_CONSOLE_URL ?? settings.KEELSON_API_URL,
  }
}

function known(): Urls {
  if (!urls) throw new Error('useLinks was not called')
  return urls
}

/** A page of the console. */
export const consolePage = (page: string): string => `${known().console.replace(/\/$/, '')}/${page}`

/**
 * The instructions for using a one-time token: a page of the console or of the API, or one API call. The token is in the fragment of
 * the link, which reaches no server and no log.
 */
export function waysToUse(token: string, page: string, operation: string): string {
  const { api, console } = known()
  const body = JSON.stringify({ token, password: 'YOUR NEW PASSWORD' })
  return `${console}/${page}#token=${token}

Or send the token yourself:

  curl ${api}${operation} \\
    -H 'content-type: application/json' \\
    -d '${body}'
`
}
