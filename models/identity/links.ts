// Where the links of mails lead. Set once, by the role that writes them.

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

/**
 * How a person uses a one-time token: by the console's page, or by one call. The token stands in the link's
 * fragment, which no server and no log sees.
 */
export function waysToUse(token: string, page: string, operation: string): string {
  if (!urls) throw new Error('useLinks was not called')
  const body = JSON.stringify({ token, password: 'YOUR NEW PASSWORD' })
  return `${urls.console}/${page}#token=${token}

Without the console, send the token yourself:

  curl ${urls.api}${operation} \\
    -H 'content-type: application/json' \\
    -d '${body}'
`
}
